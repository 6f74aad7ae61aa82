"""Make the README's pictures from a real audit in a real terminal and a real browser.

    python docs/pictures.py MODEL -- --data sample --images 16

Needs tmux and chromium. The live view is what the terminal shows when half of the work is done; the
report is what remains at the end; the page is the top of report.html.
"""

import argparse
import io
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
COLUMNS, LINES = 100, 40
PAGE = "1100,1500"
SESSION = "robust0-pictures"


def main() -> None:
    """Run the audit, photograph it, photograph its page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("options", nargs="*")
    chosen = parser.parse_args()
    typed = ["robust0", "audit", chosen.model, *chosen.options]
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.join([sys.executable, "-m", *typed, "-o", "audit"])
        path = f"PYTHONPATH={shlex.quote(str(HERE.parent))} COLORTERM=truecolor"
        live, last = photograph(f"cd {folder} && clear && {path} {command}; echo finished-$?")
        save(live, "robust0 audit ·", "", shlex.join(typed), HERE / "audit-live.svg")
        save(last, "attacks", "finished-", shlex.join(typed), HERE / "audit-report.svg")
        page(Path(folder) / "audit" / "report.html", HERE / "audit-page.png")


def photograph(command: str) -> tuple[str, str]:
    """The screen when half of the work is done, and what the terminal holds at the end."""
    tmux("kill-session", "-t", SESSION, check=False)
    tmux("new-session", "-d", "-s", SESSION, "-x", str(COLUMNS), "-y", str(LINES))
    tmux("send-keys", "-t", SESSION, command, "Enter")
    live = now = ""
    while not re.search(r"^finished-\d", Text.from_ansi(now).plain, re.MULTILINE):
        time.sleep(0.5)
        now = tmux("capture-pane", "-e", "-p", "-t", SESSION)
        share = re.search(r"overall\D*(\d+)%", Text.from_ansi(now).plain)
        if share and int(share[1]) <= 50:
            live = now
    everything = tmux("capture-pane", "-e", "-p", "-S", "-200", "-t", SESSION)
    tmux("kill-session", "-t", SESSION)
    return live, everything


def tmux(*arguments: str, check: bool = True) -> str:
    """What one tmux command prints."""
    words = ["tmux", "-L", SESSION, *arguments]  # a server of its own
    called = subprocess.run(words, capture_output=True, text=True, check=check)
    return called.stdout


def save(screen: str, first: str, end: str, title: str, path: Path) -> None:
    """A screen from the last line that begins with ``first`` to the one with ``end``, as SVG."""
    lines = screen.rstrip().splitlines()
    plain = [Text.from_ansi(line).plain for line in lines]
    begin = max(place for place, line in enumerate(plain) if line.startswith(first))
    stop = next((place for place, line in enumerate(plain) if end and end in line), len(lines))
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(lines[begin:stop])))
    console.save_svg(str(path), title=title)


def page(report: Path, path: Path) -> None:
    """The top of the report's page, by a browser."""
    subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={PAGE}", f"--screenshot={path}", report.as_uri(),
        ],
        check=True, capture_output=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
