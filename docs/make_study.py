"""Make the numbers and figures of docs/study.md from the zoo.

    python docs/make_study.py WORK [STEP ...]

Everything goes to WORK, the figures to docs/study/. A second start goes on where the first ended.
Without names, every step runs. Change MODELS or ATTACK here when the zoo changes, and take another
WORK: finished units are kept by their settings.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "study"
PREFIX = "cifar10-w8-e4-"
FLAGSHIP = "cifar10-w16-e14-fast-ls-l0"
ONE_STEP, LARGEST = f"{PREFIX}sparse-at", f"{PREFIX}fast-ls-l0"
MODELS = [ONE_STEP, f"{PREFIX}strades-t", f"{PREFIX}strades-ts", LARGEST]
ATTACK = "training"
ONLY_NUMBERS = ("-20", "-40", "flagship")  # studies of which the page shows no figure
PAIR = "--recipe quick --model preact_resnet18_w8 --method sparse-at --steps 20 --epochs 4 "
PAIR += "--train-images 10000 --set training.threat.pixels=40 "
PAIR += "--set training.precision=bf16 --set training.probe.images=200"
NO_STOP = "--set training.inner.early_stopping=false"


def steps(work: Path) -> dict[str, list[str]]:
    """The commands behind every figure, by name."""
    models = " ".join(MODELS)
    found = {
        "spectrum": [f"study spectrum {models} --attack {ATTACK} --images 256 -o {work}/zoo"],
        "budgets": [
            f"study spectrum {ONE_STEP} --attack {ATTACK} --attack {ATTACK},eps=40 "
            f"--attack {ATTACK},eps=20 --attack clean --images 256 -o {work}/eps",
        ],
        "flagship": [f"study spectrum {FLAGSHIP} --images 1000 -o {work}/flagship"],
        "landscape": [
            f"study landscape {models} --attack {ATTACK} --images 64 --grid 9 --span 0.5 "
            f"-o {work}/zoo"
        ],
        "interpolate": [f"study interpolate {models} --attack one-step --images 500 -o {work}/zoo"],
        "gradients": [
            f"study gradients {models} --attack one-step --against multi-step,steps=20 "
            f"--images 128 --batch 64 -o {work}/zoo",
            f"study gradients {models} --attack one-step --against multi-step,steps=20 "
            f"--eps 1 --images 128 --batch 64 -o {work}/one-pixel",
        ],
        "overlap": [],
        "training": [
            f"harden {PAIR} -o {work}/with-early-stopping",
            f"harden {PAIR} {NO_STOP} -o {work}/without-early-stopping",
            f"study training {work}/with-early-stopping {work}/without-early-stopping "
            f"-o {work}/zoo",
        ],
    }
    for model in (ONE_STEP, LARGEST):
        short = model.removeprefix(PREFIX)
        audit = f"{work}/audit-{short}"
        found["overlap"].append(
            f"audit {model} --attacks guided-swap --images 200 --eps 20 -o {audit}"
        )
        found["overlap"] += [
            f"study overlap {model} --attack {ATTACK},eps={eps} --audit {audit} "
            f"-o {work}/overlap-{short}-{eps}"
            for eps in (20, 40, 120)
        ]
    return found


def main() -> None:
    """Run what was asked for, then bring the figures here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("steps", nargs="*")
    chosen = parser.parse_args()
    known = steps(chosen.work)
    for name in chosen.steps or known:
        for command in known[name]:
            run(shlex.split(command))
    HERE.mkdir(exist_ok=True)
    for path in sorted(chosen.work.glob("*/*.png")):
        if path.name != "curves.png" and not path.parent.name.endswith(ONLY_NUMBERS):
            shutil.copyfile(path, HERE / f"{path.parent.name}-{path.name}")


def run(words: list[str]) -> None:
    """One command of robust0; runs that are there already are left alone."""
    out = Path(words[-1])
    kind, finished = words[0], ("report.json", "model.safetensors")
    if kind in ("audit", "harden") and any((out / name).exists() for name in finished):
        return
    if kind in ("audit", "harden") and out.exists():
        words = [kind, "--resume", str(out)]
    print("robust0", shlex.join(words), flush=True)  # noqa: T201
    subprocess.run([sys.executable, "-m", "robust0", *words], check=True)


if __name__ == "__main__":
    main()
