"""The top of a Hessian's spectrum, ours against hessian-eigenthings: same network, same images.

pip install 'robust0[bench]'
python benchmarks/hessian.py [MODEL] [--images 32] [--top 5]
"""

import argparse
import sys

import torch
from hessian_eigenthings import HessianOperator, lanczos

import robust0
from robust0.data.datasets import open_dataset
from robust0.study.hessian import Hessian, image_losses
from robust0.study.spectrum import top_eigenpairs

AGREEMENT = 1e-3


def main() -> int:
    """Print both spectra; 1 if they differ by more than AGREEMENT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="cifar10-w8-e4-sparse-at")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--top", type=int, default=5)
    chosen = parser.parse_args()
    data = open_dataset("sample", "train", progress=lambda _: None)
    images, labels = data.images(torch.arange(chosen.images)), data.labels[: chosen.images]
    network = robust0.load(chosen.model)
    ours = top_eigenpairs(Hessian(network, images, labels), chosen.top)
    theirs = lanczos(
        HessianOperator(
            network,
            [(images, labels)],
            lambda model, batch: image_losses(model(batch[0]), batch[1]).mean(),
        ),
        k=chosen.top,
        which="LA",
        max_iter=ours.products,
        seed=0,
    )
    values = theirs.eigenvalues.tolist()
    apart = [abs(a - b) / abs(b) for a, b in zip(ours.values, values, strict=True)]
    print(f"{'ours':>14} {'eigenthings':>14} {'relative':>10}")
    for a, b, gap in zip(ours.values, values, apart, strict=True):
        print(f"{a:14.5f} {b:14.5f} {gap:10.1e}")
    print(f"products: {ours.products} against {theirs.iterations}")
    return int(max(apart) > AGREEMENT)


if __name__ == "__main__":
    sys.exit(main())
