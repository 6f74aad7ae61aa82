"""Make the README's first picture: one image, two models, 20 pixels.

    python docs/first_picture.py

Both models come from the zoo; the image is one of the embedded sample that both classify correctly
when it is clean. The numbers under the models are the worst cases on their cards.
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch

import robust0
from robust0.data.datasets import open_dataset
from robust0.zoo.fetch import find_card

HERE = Path(__file__).parent
MODELS = {
    "standard training": "cifar10-w8-e4-standard",
    "Fast-LS-l0": "cifar10-w16-e14-fast-ls-l0",
}
IMAGES, PIXELS = 24, 20
ATTACKS = ("guided-swap", "sparse-rs")


def main() -> None:
    """Attack both models on a few images and draw the first that tells them apart."""
    data = open_dataset("sample", "test")
    images, labels = data.images(torch.arange(IMAGES)), data.labels[:IMAGES]
    names = data.class_names
    reports = {
        name: robust0.audit(robust0.load(zoo_id), images, labels, eps=PIXELS, attacks=ATTACKS)
        for name, zoo_id in MODELS.items()
    }
    plain, hard = (reports[name] for name in MODELS)
    right = (plain.predictions() == labels) & (hard.predictions() == labels)
    telling = right & ~plain.robust() & hard.robust()
    row = int(telling.nonzero()[0])
    figure, axes = plt.subplots(1, 4, figsize=(10, 3.1), dpi=110)
    for pair, (name, zoo_id) in zip((axes[:2], axes[2:]), MODELS.items(), strict=True):
        report, score = reports[name], find_card(zoo_id, None).card.score("worst-case")
        attacked = report.adversarial(closest=True)[row]
        changed = int((attacked != images[row]).any(dim=0).sum())
        with torch.no_grad():
            said = int(robust0.load(zoo_id)(attacked[None]).argmax())
        for axis, image, title in (
            (pair[0], images[row], f"clean: {names[int(labels[row])]}"),
            (pair[1], attacked, f"{changed} pixels changed: {names[said]}"),
        ):
            axis.imshow(image.permute(1, 2, 0).clamp(0, 1), interpolation="nearest")
            wrong = axis is pair[1] and said != int(labels[row])
            axis.set_title(title, fontsize=10, color="#b3261e" if wrong else "#1b6e3c")
            axis.set_xticks([])
            axis.set_yticks([])
        pair[0].set_xlabel(name, fontsize=11, loc="left")
        pair[1].set_xlabel(f"{score.percent:.1f} % of test images stand", fontsize=11, loc="right")
    figure.tight_layout()
    figure.savefig(HERE / "first.png")


if __name__ == "__main__":
    main()
