"""The audit: attacks over images, a record of every verdict, and the report folded from them."""
