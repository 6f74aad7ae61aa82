from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from robust0.auditing.guards import threads_per_call
from robust0.device import resolve_device, search_precision, share_cores
from robust0.errors import RecipeError

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")


def test_the_cpu():
    assert resolve_device("cpu") == resolve_device(" CPU ") == torch.device("cpu")


def test_auto_is_cuda_where_there_is_one():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    "name", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "cuda:99999", "mps:1"]
)
def test_unknown_names(name):
    with pytest.raises(RecipeError, match="unknown device") as refusal:
        resolve_device(name)
    assert "cuda:N" in refusal.value.hint


@without_cuda
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_cuda_without_a_gpu(name):
    with pytest.raises(RecipeError, match="cuda is not available") as refusal:
        resolve_device(name)
    assert "cpu" in refusal.value.hint


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="has mps")
def test_mps_without_one():
    with pytest.raises(RecipeError, match="no mps"):
        resolve_device("mps")


@pytest.mark.gpu
def test_cuda_devices():
    assert resolve_device("cuda").type == "cuda"
    assert resolve_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(RecipeError, match="CUDA devices"):
        resolve_device("cuda:999")


@pytest.mark.parametrize(
    ("cores", "threads", "expected"),
    [
        (1, None, (1, 1)),
        (2, None, (2, 1)),
        (4, None, (4, 1)),
        (9, None, (4, 2)),
        (2, 2, (1, 2)),
        (8, 1, (4, 1)),
        (1, 2, (1, 2)),
    ],
)
def test_cores_are_shared_between_calls(monkeypatch, cores, threads, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    assert share_cores(torch.device("cpu"), threads) == expected
    assert share_cores(torch.device("cuda"), threads) == (1, cores)


def test_threads_per_call_reach_other_threads_and_are_put_back():
    before = torch.get_num_threads()
    with threads_per_call(before + 1), ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == before + 1
    assert torch.get_num_threads() == before


CPU = torch.device("cpu")


@pytest.mark.parametrize("named", ["fp32", "bf16"])
def test_a_named_precision_is_what_it_says(named):
    assert search_precision(named, CPU) == named


@pytest.mark.parametrize("able", [{}, {"avx2": True}, {"avx512_bf16": True}, {"amx_bf16": True}])
def test_auto_is_bf16_where_it_is_native(able, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    native = any("bf16" in name for name in able)
    assert search_precision("auto", CPU) == ("bf16" if native else "fp32")
    assert search_precision("auto", torch.device("mps")) == "fp32"
