"""The end of our own networks: global average pooling, then one linear layer named ``linear``."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class PooledNetwork(nn.Module):
    """A network whose features are pooled and classified; timm's way to replace the classifier."""

    conv1: nn.Conv2d
    linear: nn.Module
    num_classes: int
    num_features: int
    drop_rate: float

    @torch.jit.ignore  # type: ignore[untyped-decorator]
    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return self.linear

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the last layer by a fresh one for ``num_classes`` classes."""
        if global_pool not in (None, "avg"):
            raise ValueError(f"global_pool is always 'avg' here, got {global_pool!r}")
        self.num_classes = num_classes
        self.linear = last_layer(self.num_features, num_classes).to(self.conv1.weight.device)

    def forward_features(self, x: Tensor) -> Tensor:
        """The activated feature map."""
        raise NotImplementedError

    def forward_head(self, x: Tensor, *, pre_logits: bool = False) -> Tensor:
        """Logits, or the pooled features before the last layer."""
        x = x.mean(dim=(2, 3))
        if self.drop_rate:
            x = functional.dropout(x, self.drop_rate, training=self.training)
        logits: Tensor = x if pre_logits else self.linear(x)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        return self.forward_head(self.forward_features(x))


def last_layer(features: int, num_classes: int) -> nn.Module:
    """A linear layer; nothing where no classes are asked for."""
    return nn.Linear(features, num_classes) if num_classes > 0 else nn.Identity()
