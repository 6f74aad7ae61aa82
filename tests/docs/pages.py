"""The commands and the code of README and docs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def text_of(page):
    return re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))  # joins continued lines


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


def commands(page):
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    shown = [line.split("  #")[0].strip() for line in lines]
    indented = re.findall(r"^    (robust0 .*)$", text_of(page), re.MULTILINE)
    return [line for line in [*shown, *indented] if line.startswith("robust0 ")]
