"""A folder of files to a repository on the Hugging Face hub, in one commit; no torch here."""

from pathlib import Path
from typing import cast

from robust0.download import offline
from robust0.errors import ZooError
from robust0.zoo.hub import quiet_hub
from robust0.zoo.roots import on_hub

_LOGIN = "log in with: hf auth login; or set HF_TOKEN to a token that may write"


def destination(text: str) -> str:
    """OWNER/REPO of what the user wrote; refuses what the hub would refuse by its name."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined] # documented

    repository, revision = on_hub(text, "hf-hub:OWNER/REPO")
    if revision:
        raise ZooError(
            f"{text} names a revision: a push makes a new one", f"write hf-hub:{repository}"
        )
    try:
        validate_repo_id(repository)
    except HFValidationError as problem:
        raise ZooError(
            f"{repository!r} cannot be a repository on the hub: {_one_line(problem)}",
            "use letters, digits, '-', '_' and '.', at most 96 of them",
        ) from problem
    return repository


def require_token() -> None:
    """Refuse to begin without the hub's token: from HF_TOKEN, or kept by its own login."""
    from huggingface_hub import get_token

    if offline():
        raise ZooError("ROBUST0_OFFLINE is set: nothing is uploaded", "unset it")
    if not get_token():
        raise ZooError("there is no token for the Hugging Face hub", _LOGIN)


def upload(folder: Path, repository: str, *, private: bool, message: str) -> str:
    """Create the repository if need be, commit every file of the folder; the commit's hash."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError

    files = sorted(path for path in folder.iterdir() if path.is_file())
    api = HfApi()
    # The errors of the hub derive from those of its HTTP library, whichever that is.
    theirs = cast("type[Exception]", HfHubHTTPError.__bases__[0])
    try:
        with quiet_hub():
            api.create_repo(repository, private=private or None, exist_ok=True)
            if private and not api.model_info(repository).private:
                raise ZooError(
                    f"{repository} exists and is public", "make it private on the hub, or choose "
                    "another name",
                )  # fmt: skip
            done = api.create_commit(
                repository,
                operations=[CommitOperationAdd(path.name, path) for path in files],
                commit_message=message,
            )
    except (OSError, RuntimeError, ValueError, theirs) as problem:
        raise _refusal(problem, repository) from problem
    return str(done.oid)


def _refusal(problem: BaseException, repository: str) -> ZooError:
    """What went wrong, by the answer of the hub behind it."""
    while problem.__cause__ is not None:  # "error while uploading" says less than what it was
        problem = problem.__cause__
    status = getattr(getattr(problem, "response", None), "status_code", None)
    if status == 401:
        return ZooError(f"the hub does not accept the token (pushing to {repository})", _LOGIN)
    if status == 403:
        return ZooError(
            f"the token may not write to {repository}",
            "use a token with write access, and an owner that you are or belong to",
        )
    if status is not None:
        return ZooError(
            f"the hub refuses {repository} with HTTP {status}: {_one_line(problem)}",
            "nothing was committed; correct what it names, or try again later",
        )
    return ZooError(
        f"cannot push to {repository}: {_one_line(problem)}",
        "nothing was committed; check the connection, then run the command again",
    )


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:200]
