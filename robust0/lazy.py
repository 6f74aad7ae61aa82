"""Torch, imported at its first use: settings are declared, read and refused without it.

Modules whose settings a recipe can name say ``from robust0.lazy import torch`` instead of
``import torch``; their annotations are not evaluated (``from __future__ import annotations``).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch as torch
else:
    import importlib

    class _Lazy:
        """Looks like the module; every attribute is looked up there once."""

        def __getattr__(self, name: str) -> object:
            value = getattr(importlib.import_module("torch"), name)
            if not name.startswith("__"):
                setattr(self, name, value)
            return value

    torch = _Lazy()
