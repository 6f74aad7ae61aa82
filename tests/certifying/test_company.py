"""The same answers for any batch size and order, in one process or two, killed or not."""

import json
import random
import time

import pytest
import torch
from torch import nn

from robust0.auditing.given import given_images
from robust0.certificates.partition import StridedPartition
from robust0.certifying.classifiers import Sampling, certifier_of
from robust0.certifying.run import certify_run
from robust0.cli.app import run
from robust0.commands.build_certify import CertifyRequest, build_certify
from robust0.distributed import World
from robust0.models.voting import AblationSmoothing, MaskCover, ViewVoting
from robust0.rng import seeded
from robust0.runs.subject import given_subject
from tests.certifying.conftest import RUN

CPU = torch.device("cpu")


def network():
    """Convolutions that round: a real network, not an exact one."""
    with seeded("company"):
        last = nn.Linear(32, 5, bias=False)
        last.weight.data *= 20
        return nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), last,
        ).eval()  # fmt: skip


def classifiers():
    sides = {"height": 10, "width": 10}
    yield ViewVoting(network(), StridedPartition(**sides, stride=3), "plurality", 5)
    yield MaskCover(network(), StridedPartition(**sides, stride=2), 1, 5)
    yield AblationSmoothing(network(), 30, 5)


@pytest.mark.parametrize("classifier", list(classifiers()), ids=lambda c: c.kind)
@torch.no_grad()
def test_a_proof_depends_on_its_image_alone(classifier):
    with seeded("images"):
        images = (torch.rand(23, 3, 1, 1) + 0.5 * torch.randn(23, 3, 10, 10)).clamp(0, 1)
    sampling = Sampling(choose=20, bound=60)
    certifier = certifier_of(classifier, (3, 10, 10), (1, 2), sampling, "it")
    ids = torch.arange(100, 123)
    together = certifier.prove(images, ids)
    order = torch.randperm(23, generator=torch.Generator().manual_seed(1))
    for size in (1, 4, 23):
        parts = [
            proof
            for index in order.split(size)
            for proof in certifier.prove(images[index], ids[index])
        ]
        assert parts == [together[place] for place in order.tolist()]
    assert len({str(proof) for proof in together}) > 1


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_results_are_the_same_for_any_batch_size(toy, rows):
    request = {
        "subject": given_subject(toy.network, given_images(toy.images, toy.labels, CPU), CPU),
        "pixels": (1, 3),
        "tried": 0,
    }
    made = []
    for size in (None, rows):
        job = build_certify(CertifyRequest(**request, batch_size=size))
        *_, last = certify_run(job, World(), resume=False)
        made.append(last.report.results)
    assert made[0] == made[1]


# -- processes -------------------------------------------------------------------------------------

COMMAND = [*RUN, "--images", "64", "--batch-size", "1", "--try", "6", "--every-rule"]


def results(folder):
    return json.loads((folder / "report.json").read_text())["results"]


@pytest.fixture(scope="module")
def whole(ground):
    """An undisturbed run, in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert run([*COMMAND, "-o", "whole"]) == 0
    torch.set_num_threads(before)
    return ground / "whole"


def same(one, other):
    assert results(one) == results(other)
    for name in ("proofs.jsonl", "trials.jsonl", "clean.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert not (other / "parts").exists()


def size(folder):
    return sum(path.stat().st_size for path in (folder / "parts").glob("*.jsonl"))


@pytest.mark.parametrize("times", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_ends_as_the_undisturbed_one(ground, whole, nursery, times):
    folder, draws, kills = ground / f"killed-{times}", random.Random(3), 0
    command = [*COMMAND, "-o", folder.name]
    for _ in range(times):
        before = size(folder)
        process = nursery.start(*command)
        end = time.monotonic() + 300
        while process.poll() is None and size(folder) <= before:
            assert time.monotonic() < end, "it did not get that far"
            time.sleep(0.002)
        time.sleep(draws.uniform(0, 0.15))
        kills += process.kill()
        command = ["certify", "--resume", folder.name, "--factory", "toy_votes:make"]
    assert kills >= 1
    assert not (folder / "report.json").exists()
    with (folder / "parts" / "proofs-0.jsonl").open("ab") as file:
        file.write(b'{"image": 3, "lab')  # as if the last line had been cut
    assert run(command) == 0
    same(whole, folder)


def test_two_processes_prove_what_one_proves(ground, whole, nursery):
    for rank in nursery.start_two(*COMMAND, "-o", "two"):
        rank.finish()
    same(whole, ground / "two")
    assert json.loads((ground / "two" / "report.json").read_text())["run"]["processes"] == 2


def test_a_folder_does_not_run_code_by_itself(whole, capfd):
    assert run(["certify", "--resume", "whole"]) == 2
    assert "code runs only if you name it" in capfd.readouterr().err


def test_another_run_cannot_be_resumed(ground, whole, capfd):
    assert run([*COMMAND, "-o", "whole"]) == 2
    assert "already holds a run" in capfd.readouterr().err
    resume = ["certify", "--resume", "whole", "--factory", "toy_votes:make"]
    assert run([*resume, "--eps", "3"]) == 2
    assert "cannot be changed" in capfd.readouterr().err
    told = (ground / "whole" / "run.json").read_text()
    (ground / "whole" / "run.json").write_text(told.replace("revision 1", "revision 0"))
    assert run(resume) == 2
    assert "was started with another certificate" in capfd.readouterr().err
    (ground / "whole" / "run.json").write_text(told)
