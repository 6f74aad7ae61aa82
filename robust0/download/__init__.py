"""Fetching files over the web: ``fetch`` is the whole interface."""

from robust0.download.transfer import UnreachableError, acquired, fetch, offline

__all__ = ["UnreachableError", "acquired", "fetch", "offline"]
