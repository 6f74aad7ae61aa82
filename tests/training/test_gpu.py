"""What needs CUDA: half precision with its loss scaler, data and draws on the device."""

from dataclasses import replace

import pytest
import torch

from robust0.distributed import World
from robust0.events import EpochDone, Saved
from robust0.rng import Stream
from robust0.training import loop, snapshot
from robust0.training.methods.labels import SelfAdaptiveLabels
from tests.training.conftest import make_job

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


def on_gpu(folder, **changes):
    job = make_job(folder)
    data = job.data.to(CUDA)
    method = replace(job.method, targets=SelfAdaptiveLabels().build(data.labels, 3))
    return replace(
        job, network=job.network.to(CUDA), data=data, rows=job.rows.to(CUDA),
        reserved=job.reserved.to(CUDA), method=method, device=CUDA, **changes,
    )  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_precision_learns(tmp_path, precision):
    events = list(loop.run_training(on_gpu(tmp_path, precision=precision), World(), resume=False))
    assert [e.clean for e in events if isinstance(e, EpochDone)][-1] > 0.8


def test_the_loss_scaler_survives_a_resume(tmp_path):
    run = loop.run_training(on_gpu(tmp_path, precision="fp16"), World(), resume=False)
    for event in run:
        if isinstance(event, Saved) and event.kind == "snapshot":
            run.close()
            break
    kept = snapshot.latest(tmp_path, CUDA).memory["scaler"]
    assert kept["scale"] > 0
    events = list(loop.run_training(on_gpu(tmp_path, precision="fp16"), World(), resume=True))
    assert events[0].step == 5


def test_draws_are_the_same_as_on_the_cpu(tmp_path):
    cpu, gpu = make_job(tmp_path / "cpu"), on_gpu(tmp_path / "gpu")
    images, ids = cpu.data.images(torch.arange(8)), torch.arange(8)
    stream = Stream.of("device")
    here = cpu.method.noise(images, ids, stream, cpu.method.threat)
    there = gpu.method.noise(images.to(CUDA), ids.to(CUDA), stream, cpu.method.threat)
    assert torch.equal(here, there.cpu())
