"""What ``--effort converged`` costs and finds beside quick and standard, and what it leaves.

    python benchmarks/converged.py MODEL [--data cifar10] [--eps 20] [--images 200] [--out DIR]
        [--first quick,standard] [--again standard] [--left 100] [--max-passes 30000]

Audits the same images at effort quick and standard (battery) and converged, then attacks what
converged left standing, or as many of it as ``--left`` says, with the battery at effort standard
and another seed. The last column of the second table is to stay below the tolerance, 0.5 % of all
images; of some of the survivors it is what all would have given. A benchmark that was stopped goes
on where it was with the same words. Standard costs most, some 10,000 passes per image.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from robust0.auditing.known import fallen, hits_within
from robust0.auditing.plan import evenly
from robust0.auditing.rundata import RunData, read_run
from robust0.records import CLEAN
from robust0.wording import convergence


def audit(words: list[str], folder: Path) -> RunData:
    """A finished audit; one that is there already is read, one that was stopped goes on."""
    if not (folder / "report.json").exists():
        begun = (folder / "run.json").exists()
        asked = ["--resume", str(folder)] if begun else [*words, "-o", str(folder)]
        command = [sys.executable, "-m", "robust0", "audit", *asked, "--output-format", "json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words
    return read_run(folder)


def passes(run: RunData) -> float:
    """Forwards and backwards per image of the run."""
    attacks = [verdict for verdict in run.verdicts.values() if verdict.attack != CLEAN]
    return sum(v.forwards + v.backwards for v in attacks) / max(1, len(run.images))


def survivors(run: RunData, budget: int) -> list[int]:
    """Images that no attack broke."""
    hits = hits_within(run.verdicts.values(), budget)
    broken = fallen(hits, hits)
    return [
        image
        for image in run.images
        if not run.verdicts[0, CLEAN, image].fooled and image not in broken
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What effort converged costs and leaves.")
    parser.add_argument("model")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--eps", type=int, default=20)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--first", default="quick,standard", help="efforts to compare with")
    parser.add_argument("--again", default="standard", help="effort of the last attacks")
    parser.add_argument("--left", type=int, help="survivors to attack again; all if not given")
    parser.add_argument("--max-passes", type=int, default=30_000, help="of effort converged")
    parser.add_argument("--out", type=Path, default=Path("converged-benchmark"))
    given = parser.parse_args()
    common = [given.model, "--eps", str(given.eps)]
    chosen = [*common, "--data", given.data, "--images", str(given.images)]
    print("| effort | worst case | passes per image | seconds |\n|---|---|---|---|")
    for effort in [*given.first.split(","), "converged"]:
        limit = ["--max-passes", str(given.max_passes)] if effort == "converged" else []
        run = audit([*chosen, "--effort", effort, *limit], given.out / effort)
        worst = run.report.results.budgets[0].ensembles[-1].robust
        seconds = run.report.run.seconds
        print(
            f"| {effort} | {100 * worst.share:.1f} % | {passes(run):,.0f} | {seconds:,.0f} |",
            flush=True,
        )
    print(f"\n{convergence(run.report.results)}\n")
    standing = survivors(run, given.eps)
    left = evenly(standing, given.left or len(standing))
    if not left:
        print("no image was left")
        return
    rows = [run.clean.rows()[image] for image in left]
    pixels, labels = run.clean.images[rows].transpose(0, 2, 3, 1), run.clean.labels[rows]
    classes = run.info.facts.class_names
    np.savez(given.out / "left.npz", images=pixels, labels=labels, class_names=np.array(classes))
    words = [*common, "--data", f"npz:{given.out / 'left.npz'}", "--images", str(len(left))]
    again = audit([*words, "--effort", given.again, "--seed", "1"], given.out / "left")
    print(f"{len(left)} of the {len(standing)} images left\n")
    print(f"| attack at effort {given.again} | broke | of what was left | of all images |")
    print("|---|---|---|---|")
    for row in again.report.results.budgets[0].attacks:
        share = row.broken / len(left)
        of_all = 100 * share * len(standing) / len(run.images)
        print(f"| {row.name} | {row.broken} | {100 * share:.1f} % | {of_all:.2f} % |")


if __name__ == "__main__":
    main()
