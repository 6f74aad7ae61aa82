"""What this installation consists of, and what it can reach; nothing is changed or fetched."""

import importlib.metadata
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from robust0 import __version__
from robust0.download import offline
from robust0.errors import Robust0Error
from robust0.resources import cache_dir, config_file
from robust0.zoo.roots import open_root

LIBRARIES = ("torch", "torchvision", "timm", "numpy", "safetensors", "typer", "rich", "pydantic")
HOSTS = {
    "Hugging Face hub": "https://huggingface.co",
    "CIFAR": "https://www.cs.toronto.edu",
    "GTSRB": "https://sid.erda.dk",
    "npm registry": "https://registry.npmjs.org",
}
SECONDS = 3.0  # that a host may take to answer


def findings(*, network: bool = True) -> Iterator[tuple[str, str]]:
    """What was found, one thing after the other: the quick ones first."""
    yield "robust0", f"{__version__}, {Path(__file__).parents[1]}"
    yield "python", f"{platform.python_version()}, {sys.executable}"
    for name in LIBRARIES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "MISSING: reinstall robust0"
    yield "settings", _settings()
    yield "zoo", _zoo()
    yield "cache", _cache()
    yield from _hardware()
    if network and not offline():
        for name, address in HOSTS.items():
            yield name, _reachable(address)
    else:
        yield "network", "not asked (ROBUST0_OFFLINE or --no-network)"


def _settings() -> str:
    path = config_file()
    return str(path) if path.is_file() else f"none ({path} does not exist)"


def _zoo() -> str:
    try:
        root = open_root(None)
        return f"{root.name}, {len(root.listing(refresh=False).cards)} models"
    except Robust0Error as problem:
        return f"PROBLEM: {problem.message}"


def _cache() -> str:
    folder = cache_dir()
    at = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    free = shutil.disk_usage(at).free / 2**30
    able = "writable" if os.access(at, os.W_OK) else "NOT WRITABLE: set ROBUST0_CACHE"
    return f"{folder}, {able}, {free:.1f} GiB free"


def _hardware() -> Iterator[tuple[str, str]]:
    import torch

    from robust0.device import resolve_device, search_precision, share_cores

    device = resolve_device("auto")
    lanes, threads = share_cores(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    yield "device", f"{device.type} ({name or platform.machine()})"
    yield "threads", f"{lanes} calls at once, {threads} threads each"
    yield "search precision", search_precision("auto", device)


def _reachable(address: str) -> str:
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the table above
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310
            return "reachable"
    except urllib.error.HTTPError:
        return "reachable"  # it answered
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        return f"not reachable: {reason}"
