"""One file of a repository on the Hugging Face hub, at one commit; no torch here."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robust0.download import offline
from robust0.errors import ZooError


class HubFileError(ZooError):
    """A repository does not have this file, or cannot be asked for it."""


def download(repository: str, revision: str | None, file: str) -> Path:
    """The file in the hub's cache; a commit never changes, so what is there is not asked for.

    Args:
        repository: OWNER/NAME.
        revision: a commit, a branch or a tag; None: the main branch as it is now.
        file: its name there.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"hf-hub:{repository}" + (f"@{revision[:12]}" if revision else "")
    try:
        with quiet_hub():
            found = hf_hub_download(repository, file, revision=revision, local_files_only=offline())
        return Path(str(found))
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError) as problem:
        raise ZooError(
            f"the hub has no public {where}", "check owner, name and commit, or: hf auth login"
        ) from problem
    except LocalEntryNotFoundError as problem:
        raise HubFileError(
            f"cannot fetch {file} of {where}: the hub cannot be reached, the cache lacks it",
            "check the connection and ROBUST0_OFFLINE, or use --zoo with a folder",
        ) from problem
    except EntryNotFoundError as problem:
        raise HubFileError(
            f"{where} has no {file}", "robust0 zoo push and robust0 zoo add write it"
        ) from problem
    except HFValidationError as problem:
        raise ZooError(f"{where} is not OWNER/NAME on the hub", "check the spelling") from problem
    except OSError as problem:
        reason = " ".join(str(problem).split())[:200]
        raise ZooError(f"cannot fetch {file} of {where}: {reason}", "try again later") from problem


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Keep the hub's bars and its log of retries out of the terminal; our events tell it."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined] # documented names
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    logger, bars = logging.getLogger("huggingface_hub"), not are_progress_bars_disabled()
    level = logger.level
    logger.setLevel(logging.ERROR)
    if bars:
        disable_progress_bars()
    try:
        yield
    finally:
        logger.setLevel(level)
        if bars:
            enable_progress_bars()
