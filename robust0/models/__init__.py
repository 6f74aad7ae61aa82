"""Networks and their checkpoints. Importing this package registers our networks with timm."""

from robust0.models.networks import preact, small_resnet, viewnet

__all__ = ["preact", "small_resnet", "viewnet"]
