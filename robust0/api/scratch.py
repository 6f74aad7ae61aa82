"""A folder that lives as long as the object that needs it."""

import shutil
import tempfile
import weakref
from pathlib import Path


class ScratchFolder:
    """Removed when nothing refers to it any more, or when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="robust0-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
