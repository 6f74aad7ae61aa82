"""The datasets that robust0 knows by name: facts only, no torch."""

from dataclasses import dataclass
from typing import Literal

from robust0.data import classes

Split = Literal["train", "test"]
Variant = Literal["official", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """What is known of a dataset before it is opened."""

    name: str
    description: str
    classes: int
    image_size: int
    train_images: int | None  # None: depends on the class list
    test_images: int
    class_names: tuple[str, ...] = ()  # empty: the caller's class list says
    channels: int = 3
    flips: bool = True  # a mirrored image keeps its class
    variants: tuple[Variant, ...] = ("official",)
    fetched: bool = True  # robust0 can download it


DATASETS: dict[str, DatasetInfo] = {
    spec.name: spec
    for spec in (
        DatasetInfo(
            name="cifar10",
            description="60,000 photographs of animals and vehicles (Krizhevsky 2009)",
            classes=10,
            image_size=32,
            train_images=50_000,
            test_images=10_000,
            class_names=classes.CIFAR10,
        ),
        DatasetInfo(
            name="cifar100",
            description="60,000 photographs of 100 kinds of things (Krizhevsky 2009)",
            classes=100,
            image_size=32,
            train_images=50_000,
            test_images=10_000,
            class_names=classes.CIFAR100,
        ),
        DatasetInfo(
            name="gtsrb",
            description="German road signs (Stallkamp et al. 2012)",
            classes=43,
            image_size=32,
            train_images=39_209,
            test_images=12_630,
            class_names=classes.GTSRB,
            flips=False,  # keep left and keep right are different classes
            variants=("official", "paper"),
        ),
        DatasetInfo(
            name="imagenet100",
            description="100 classes of ImageNet from --data-dir: train/<wnid>, val/<wnid>",
            classes=100,
            image_size=224,
            train_images=None,
            test_images=5_000,
            fetched=False,
        ),
        DatasetInfo(
            name="sample",
            description="the first images of cifar10's splits, inside the package",
            classes=10,
            image_size=32,
            train_images=1_000,
            test_images=1_000,
            class_names=classes.CIFAR10,
            fetched=False,
        ),
    )
}
