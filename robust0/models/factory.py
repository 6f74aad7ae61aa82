"""A user's own network: ``package.module:callable``, called without arguments.

The module sees images in [0, 1]; any normalisation is its own affair. Importing it runs the user's
code, which is why this happens only when asked for, never because a checkpoint names a factory.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from robust0 import rng
from robust0.errors import ModelError, Robust0Error
from robust0.models.checkpoint import load_weights
from robust0.models.conduct import describe, misconduct
from robust0.models.header import one_line
from robust0.models.metadata import Metadata

_SYNTAX = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


@dataclass(frozen=True, slots=True)
class FactoryNetwork:
    """A network from a factory; ``metadata`` and ``sha256`` are of its weights' file, if any."""

    network: nn.Module
    metadata: Metadata | None
    sha256: str | None


def from_factory(
    name: str | Callable[[], object], weights: str | Path | None = None, *, seed: int = 0
) -> FactoryNetwork:
    """Call a factory, or the one of this name, and load the weights strictly, if there are any."""
    factory = _find(name) if isinstance(name, str) else name
    network = _call(factory, name if isinstance(name, str) else _called(name), seed)
    if weights is None:
        return FactoryNetwork(network, None, None)
    loaded = load_weights(network, weights)
    return FactoryNetwork(network, loaded.metadata, loaded.sha256)


def _called(factory: object) -> str:
    return getattr(factory, "__qualname__", type(factory).__name__)


def _find(name: str) -> Callable[[], object]:
    match = _SYNTAX.fullmatch(name)
    if match is None:
        raise ModelError(
            f"{one_line(name)!r} does not name a factory", "use package.module:callable"
        )
    module_name, attributes = match[1], match[2]
    here = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if here not in sys.path:
        sys.path.insert(0, here)  # like python -m: the user's own modules are where they work
    importlib.invalidate_caches()
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ModelError(
                f"there is no module {module_name} for the factory {name}",
                f"run where it can be imported; {here} was searched too",
            ) from error
        raise ModelError(
            f"importing {module_name} failed: it needs the module {missing}",
            f"install it: pip install {missing}",
        ) from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise _broken(f"importing {module_name}", error) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise ModelError(f"{module_name} has no {attributes}", "check the name after the colon")
        found = getattr(found, attribute)
    if not callable(found):
        raise ModelError(
            f"{name} is a {type(found).__name__}, expected a callable",
            "name a function or class that returns the network",
        )
    return found


def _call(factory: Callable[[], object], name: str, seed: int) -> nn.Module:
    try:
        with rng.seeded("weights", seed):
            network = factory()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise _broken(f"calling {name}() without arguments", error) from error
    if not isinstance(network, nn.Module):
        raise ModelError(
            f"{name}() returned a {type(network).__name__}, expected a torch.nn.Module",
            "return the network itself, ready for images in [0, 1]",
        )
    return network


def _broken(step: str, error: BaseException) -> Robust0Error:
    if isinstance(error, SystemExit):  # what argparse does to a script's own command line
        return misconduct(f"{step} tried to end the program: {describe(error)}")
    return ModelError(f"{step} failed: {describe(error)}", "ROBUST0_DEBUG=1 shows where")
