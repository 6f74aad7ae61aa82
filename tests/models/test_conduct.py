import subprocess
import sys

import pytest
from torch._inductor.exc import InductorError

from robust0.errors import EvaluationError
from robust0.models.conduct import answerable

COMPILE = """
import torch
from robust0.models.conduct import answerable

with answerable("in its forward"):
    torch.compile(lambda x: (x.exp() + 1).log().sum())(torch.ones(64, 64))
"""


def test_a_failed_compilation_is_not_blamed_on_the_model():
    with (
        pytest.raises(EvaluationError, match=r"compiling the model failed.*too short") as refusal,
        answerable("in its forward"),
    ):
        raise InductorError(ImportError("x.so: file too short"), None)
    assert "--compile" in refusal.value.hint


@pytest.mark.slow
def test_files_damaged_by_a_kill_are_named_as_the_cause(tmp_path):
    def compile_it():
        return subprocess.run(
            [sys.executable, "-c", COMPILE],
            env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert compile_it().returncode == 0
    libraries = list(tmp_path.rglob("*.so"))
    assert libraries
    for path in libraries:
        path.write_bytes(b"")
    assert "EvaluationError: compiling the model failed" in compile_it().stderr
