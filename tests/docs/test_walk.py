"""A walk through docs/: the commands of each page run in order, in one folder.

Names in capitals stand for a reader's own files and are replaced by files made here. What takes
longer than a CI job has is shortened by options added at its end; nothing else is changed.
"""

import os
import shlex

import pytest

from robust0.cli.app import run
from tests.docs.pages import PAGES, commands

HARDENED, OVERFITTED, VOTING = (
    "cifar10-w8-e4-fast-ls-l0",
    "cifar10-w8-e4-sparse-at",
    "cifar10-votes25-e120",
)
FEW = "--data sample --images 4"
OWN = "audit weights.safetensors --factory my_package.nets:make --data npz:my.npz --eps 3"
OWN += " --effort smoke"
TINY = f"{FEW} --effort smoke --eps 5"
SHORTER = {
    "audit": "--dry-run",
    "harden": "--dry-run",
    "certify": f"{FEW} --try 1",
    "study": FEW,
    "zoo": "",
}
# The runs that a study reads.
PAIR = "harden --recipe quick --model preact_resnet18_w8 --method sparse-at --steps 20"
SHORTER_STILL = {  # by how a command begins; for a study that reads an audit or runs
    "audit cifar10-w8-e4-sparse-at": f"{FEW} --effort smoke",  # the audit that a study reads
    "study overlap": "",
    "study training": "",
    PAIR: "--data sample --epochs 1 --steps 2 --train-images 64 --set training.probe.images=8",
    f"certify {VOTING} --data cifar10 --attack": f"{FEW} --try 0 --effort smoke",
    f"certify {VOTING} --audit": "--try 0",
    "study landscape": f"{FEW} --grid 3",
}
NAMES = {
    "certify.md": {"MODEL": VOTING},
    "study.md": {"MODELS": f"{OVERFITTED} {HARDENED}", "MODEL": OVERFITTED},
}
FIRST = {  # commands that make what a page speaks of
    "audit.md": [f"{OWN} -o runs/..."],
    "gate.md": [f"{OWN} -o audit"],
    "certify.md": [
        f"audit {VOTING} {TINY} --attacks guided-swap -o AUDIT_RUN",
        f"certify {VOTING} {FEW} --try 0 -o RUN",
        "gate RUN --write-baseline baseline.json",
    ],
}
LONG = ("zoo verify", "zoo add", "zoo push", "harden --resume")  # run by tests/zoo, tests/training
FLOOR = "--fail-under"  # exit 1 is an answer


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page, workplace, tmp_path, monkeypatch, capfd):
    for entry in workplace.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(os.environ, "COLUMNS", "100")
    for line in FIRST.get(page.name, []):
        walk(line, capfd)
    for line in commands(page):
        line = line.removeprefix("robust0 ").partition("  #")[0]
        if not line.startswith(LONG):
            for name, meant in NAMES.get(page.name, {}).items():
                line = " ".join(meant if word == name else word for word in line.split())
            more = [SHORTER_STILL[begin] for begin in SHORTER_STILL if line.startswith(begin)]
            more = (more or [SHORTER.get(line.split()[0], "")])[0]
            walk(f"{line} {more}", capfd)


def walk(line, capfd):
    code = run(shlex.split(line, comments=True))
    said = "\n".join(capfd.readouterr())
    assert code in ((0, 1) if FLOOR in line else (0,)), f"{line}\n{said}"
