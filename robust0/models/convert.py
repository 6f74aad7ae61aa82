"""``robust0 zoo convert``: a pickled state dict becomes a robust0 checkpoint.

Never a fallback: the normal path refuses pickles and names this command. The pickle is opened in a
process of its own (see convert_worker); this one only reads the safetensors file it leaves.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from robust0.errors import ModelError
from robust0.models import convert_worker
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import load_weights, save_checkpoint
from robust0.models.header import one_line
from robust0.models.metadata import Metadata

_SECONDS = 900.0
_REFUSALS = {  # the worker's kind: message and hint
    "refused": (
        "needs more than plain weights to unpickle",
        "save model.state_dict() where the file came from, and convert that",
    ),
    "unreadable": ("is not a PyTorch file", "check the download"),
    "shape": ("is not a state dict", "expected a table of names and tensors"),
    "tensors": (
        "holds tensors that cannot be copied",
        "the file is hostile, or too large for this machine",
    ),
}


def convert(
    source: str | Path,
    target: str | Path,
    spec: NetworkSpec,
    *,
    class_names: tuple[str, ...] = (),
    dataset: str | None = None,
    seconds: float = _SECONDS,
) -> str:
    """Convert a ``.pth`` or ``.pt`` file of this network; returns the sha256 of the new file.

    Args:
        source: a state dict, bare or under "state_dict" or "model"; "module." is stripped.
        target: the ``.safetensors`` file to write.
        spec: the network, from ``plan(..., adapt=False).spec``: weights fix the shapes.
        class_names: recorded in the checkpoint.
        dataset: recorded in the checkpoint.
        seconds: how long the unpickling may take.
    """
    source, target = Path(source), Path(target)
    if not source.is_file():
        raise ModelError(f"no file at {source}", "check the path and its spelling")
    metadata = Metadata.of(spec, class_names=class_names, dataset=dataset)
    with tempfile.TemporaryDirectory(prefix="robust0-convert-") as folder:
        tensors = Path(folder, "weights.safetensors")
        _unpickle(source, tensors, seconds)
        model = build(spec)
        try:
            load_weights(model, tensors)
        except ModelError as error:
            raise ModelError(
                error.message.replace(str(tensors), str(source)), error.hint
            ) from error
    return save_checkpoint(target, model, metadata)


def _unpickle(source: Path, tensors: Path, seconds: float) -> None:
    # -P keeps the worker's folder and the current one out of the import path.
    command = [sys.executable, "-P", convert_worker.__file__, str(source.resolve()), str(tensors)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - our own worker, no shell
            command,
            capture_output=True,
            timeout=seconds,
            check=False,
            cwd=tensors.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"unpickling {source} took more than {seconds:g} seconds", "do not trust this file"
        ) from error
    kind, detail = _answer(done.stdout)
    if done.returncode != 0 or kind is None:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"code {done.returncode}"
        lines = done.stderr[-1000:].decode(errors="replace").splitlines()
        last = one_line(lines[-1] if lines else "no message")
        raise ModelError(
            f"unpickling {source} ended with {how}: {last}",
            "the file is damaged, hostile or too large for this machine",
        )
    if kind != "ok":
        message, hint = _REFUSALS[kind]
        raise ModelError(f"{source} {message}: {detail}", hint)


def _answer(output: bytes) -> tuple[str | None, str]:
    """The worker's verdict; untrusted, since the pickle may have taken the process over."""
    try:
        answer = json.loads(output.decode(errors="replace"))
    except ValueError:
        return None, ""
    kind = answer.get("kind") if isinstance(answer, dict) else None
    if kind not in ("ok", *_REFUSALS):
        return None, ""
    return kind, one_line(answer.get("detail", ""))
