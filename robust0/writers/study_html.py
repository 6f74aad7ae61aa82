"""One HTML page for everything in a study's folder; it needs no other file."""

import base64
import json
import shlex
from pathlib import Path

from robust0.files import write_text
from robust0.study.folder import Json, read_results
from robust0.study.run import PARTS
from robust0.study.tables import rows_of, title_of
from robust0.writers.page import page

PAGE = "study.html"


def write_page(folder: Path) -> Path | None:
    """Write the page if several parts or models were studied; its path."""
    documents = read_results(folder, PARTS)
    if len(documents) < 2 and all(len(document["results"]) < 2 for document in documents):
        return None
    sections = [_section(folder, document) for document in documents]
    path = folder / PAGE
    write_text(path, page("study.html.j2", title="robust0 study", sections=sections))
    return path


def _section(folder: Path, document: Json) -> Json:
    part = document["part"]
    rows = rows_of(document)
    pictures = sorted(folder.glob(f"{part}.svg")) + sorted(folder.glob(f"{part}-*.svg"))
    about = document["about"]
    facts = [
        f"{name}: {value}"
        for name, value in about.items()
        if name not in ("models", "runs", "data") and value is not None
    ]
    return {
        "part": part,
        "title": title_of(part),
        "columns": list(rows[0]) if rows else [],
        "rows": [["-" if value is None else str(value) for value in row.values()] for row in rows],
        "figures": [
            "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
            for path in pictures
        ],
        "facts": "; ".join(facts),
        "command": _command(folder / part / "run.json"),
    }


def _command(path: Path) -> str:
    if not path.is_file():
        return ""
    return shlex.join(json.loads(path.read_text(encoding="utf-8"))["command"])
