"""Networks and their checkpoints. Importing this package registers our networks with timm."""

from robust0.models import preact, small_resnet

__all__ = ["preact", "small_resnet"]
