"""Taking known files out of archives, into a folder of our own, within a size limit."""

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from robust0.errors import DataError

_MOST_BYTES = 4 << 30


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as problem:
        raise DataError(
            f"{archive} is not a whole archive: {problem}", "delete it and fetch it again"
        ) from problem


def untar(archive: Path, names: Collection[str], into: Path) -> None:
    """Copy the regular files with these base names out of a tar file, flat into a folder."""
    into.mkdir(parents=True, exist_ok=True)
    missing = set(names)
    with _reading(archive), tarfile.open(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            content = tar.extractfile(member) if member.isreg() and name in missing else None
            if content is None:
                continue
            _check_size(archive, member.size)
            with content, (into / name).open("wb") as file:
                shutil.copyfileobj(content, file)
            missing.remove(name)
    if missing:
        raise DataError(
            f"{archive} lacks {', '.join(sorted(missing))}", "it is another archive: replace it"
        )


def unzip(archive: Path, into: Path) -> None:
    """Unpack a zip file whose members together stay within the limit."""
    with _reading(archive), zipfile.ZipFile(archive) as packed:
        _check_size(archive, sum(member.file_size for member in packed.infolist()))
        packed.extractall(into)  # noqa: S202 - zipfile keeps members inside the folder


def _check_size(archive: Path, size: int) -> None:
    if size > _MOST_BYTES:
        raise DataError(
            f"{archive} unpacks to {size} bytes, more than the {_MOST_BYTES} allowed",
            "it is damaged or hostile: delete it",
        )
