"""Reports as files: HTML, Markdown, JUnit XML and the pictures in them."""
