"""Make the README's chart: images that stand, over the minutes of training.

    python docs/training_time.py WORK [RUN ...]

Trains a thin network on a short schedule in four ways, one after the other, in WORK; a second start
goes on where the first ended. With names, only those runs. Minutes are those of the training steps,
the overfitting watch not counted; standing are reserved training images under guided-swap and then
sparse-rs at 20 pixels. Run it with nothing else on the machine: the minutes are its result.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
BATCH = 128
COMMON = (
    "harden --recipe quick --model preact_resnet18_w8 --train-images 12800 --epochs 8 --compile "
    "--set training.precision=bf16 --set training.probe.images=300 --set training.probe.every=2 "
    "--set training.probe.forwards=300 --set training.probe.queries=300"
)
SGD = "--set training.optimizer.kind=sgd --set training.optimizer.lr=0.1"
RUNS = {
    "steps-of-0.25": f"{SGD} --set training.inner.alpha=0.25 --set training.inner.beta=0.25",
    "steps-of-1": SGD,
    "20-steps": f"{SGD} --steps 20",
    "muon": "",
}
NAMES = {
    "steps-of-0.25": "Fast-LS-l0, steps of 0.25",
    "steps-of-1": "Fast-LS-l0, steps of 1",
    "20-steps": "20-step training",
    "muon": "Fast-LS-l0 with Muon (recipe quick)",
}


def main() -> None:
    """Train what is missing, draw what is there, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("runs", nargs="*", choices=[[], *RUNS])
    chosen = parser.parse_args()
    for name in chosen.runs or RUNS:
        train(name, chosen.work / name)
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    print("| | minutes | clean | standing |\n|---|---|---|---|")  # noqa: T201
    for name, title in NAMES.items():
        points = readings(chosen.work / name)
        if not points:
            continue
        axes.plot([p[0] for p in points], [p[2] for p in points], marker="o", label=title)
        minutes, clean, standing = points[-1]
        print(f"| {title} | {minutes:.1f} | {clean:.1f} | {standing:.1f} |")  # noqa: T201
    axes.set(xlabel="minutes of one core", ylabel="standing at 20 pixels (%)", xscale="log", ylim=0)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(HERE / "training-time.png", dpi=130)


def train(name: str, out: Path) -> None:
    """One run; what is there is left alone, what was cut short goes on."""
    if (out / "model.safetensors").exists():
        return
    words = f"{COMMON} {RUNS[name]} -o {out}" if not out.exists() else f"harden --resume {out}"
    subprocess.run([sys.executable, "-m", "robust0", *shlex.split(words)], check=True)


def readings(run: Path) -> list[tuple[float, float, float]]:
    """Minutes of training so far, clean and standing accuracy in percent, at every reading."""
    if not (run / "metrics.jsonl").exists():
        return []
    found, seconds, last = [], 0.0, 0
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["event"] == "step":
            seconds += (record["step"] - last) * BATCH / record["images_per_second"]
            last = record["step"]
        if record["event"] == "epoch":
            found.append((seconds / 60, 100 * record["clean"], 100 * record["probe"]))
    return found


if __name__ == "__main__":
    main()
