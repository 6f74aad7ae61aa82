"""A small checkpoint that every test of files can spoil in its own way."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import Metadata, save_checkpoint


@pytest.fixture(scope="session")
def thin_spec() -> NetworkSpec:
    return NetworkSpec(
        "preact_resnet18_w8", 10, (3, 32, 32), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)
    )


@pytest.fixture(scope="session")
def thin_bytes(thin_spec: NetworkSpec, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("thin") / "thin.safetensors"
    save_checkpoint(path, build(thin_spec), Metadata.of(thin_spec))
    return path.read_bytes()


@pytest.fixture
def thin_path(thin_bytes: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "thin.safetensors"
    path.write_bytes(thin_bytes)
    return path


class Editor:
    """Takes a safetensors file apart and puts it together with another header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        self.header = json.loads(data[8 : 8 + length])
        self.buffer = data[8 + length :]

    def notes(self) -> dict:
        return json.loads(self.header["__metadata__"]["robust0"])

    def set_notes(self, **changes: object) -> None:
        self.header["__metadata__"]["robust0"] = json.dumps({**self.notes(), **changes})

    def write(self, header: bytes | None = None) -> Path:
        text = json.dumps(self.header).encode() if header is None else header
        self.path.write_bytes(len(text).to_bytes(8, "little") + text + self.buffer)
        return self.path


@pytest.fixture
def editor(thin_path: Path) -> Editor:
    return Editor(thin_path)


@pytest.fixture
def unprivileged(tmp_path: Path) -> Callable[[], AbstractContextManager[None]]:
    """A context without the superuser's right to read and write everything."""

    @contextmanager
    def dropped() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        folders = [tmp_path, *tmp_path.parents]
        modes = {folder: folder.stat().st_mode for folder in folders}
        for folder, mode in modes.items():
            if not mode & 0o001:
                folder.chmod(mode | 0o011)  # others may pass through
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
            for folder, mode in modes.items():
                folder.chmod(mode)

    return dropped
