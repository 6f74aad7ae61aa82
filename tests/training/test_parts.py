"""Methods that train on parts of images, and the classifiers they are for."""

from dataclasses import replace

import pytest
import torch

import robust0
from robust0.certificates.partition import StridedPartition
from robust0.errors import RecipeError
from robust0.events import EpochDone, Saved
from robust0.models.networks.viewnet import ViewNet
from robust0.models.voting import AblationSmoothing, MaskCover, ViewVoting
from robust0.rng import Stream, seeded
from robust0.threats import Threat
from robust0.training.averaging import SWA
from robust0.training.job import Watch
from robust0.training.methods.ablation import RandomAblation
from robust0.training.methods.inner import NoAttack
from robust0.training.methods.labels import SmoothedLabels
from robust0.training.methods.masks import LatticeMasks
from robust0.training.methods.noise import NoNoise
from robust0.training.methods.objectives import CleanObjective, TradesObjective
from robust0.training.methods.partition_vote import PartitionVote
from robust0.training.optimizers import SGD
from robust0.training.proving import proved_accuracy
from tests.training.conftest import make_job
from tests.training.test_loop import same, train, weights

STREAM = Stream.of("test")
IDS = torch.arange(4)
IMAGES = STREAM.uniform(IDS, IDS, 3 * 64).view(4, 3, 8, 8)


@pytest.mark.parametrize("partition", ["strided", "walking", "random"])
def test_views_are_those_that_will_vote(partition):
    step = PartitionVote(partition=partition, stride=3, views=5, seed=2, per_image=4)
    views = step.notes().split(8, 8).split(IMAGES)
    parts = step.parts(IMAGES, IDS, STREAM)
    assert parts.shape == (4, 4, 4, *views.shape[3:])
    for image in range(4):
        places = [
            [torch.equal(part, view) for view in views[image]].index(True) for part in parts[image]
        ]
        assert len(set(places)) == 4  # no view of an image twice in a step


def test_views_differ_between_images_and_epochs():
    step, ids = PartitionVote(stride=4), torch.arange(64)
    images = torch.arange(16.0).view(4, 4).repeat(2, 2).expand(64, 3, 8, 8)  # names its phases
    drawn = step.parts(images, ids, STREAM)[:, 0, 0, 0, 0]
    assert len(set(drawn.tolist())) > 10
    assert not torch.equal(drawn, step.parts(images, ids, Stream.of("other"))[:, 0, 0, 0, 0])


def test_ablation_shows_so_many_pixels_and_masks_hide_up_to_two_masks():
    shown = RandomAblation(keep=9, per_image=3).parts(IMAGES, IDS, STREAM)
    assert shown.shape == (4, 3, 4, 8, 8)
    assert (shown[:, :, 3].sum(dim=(2, 3)) == 9).all()
    assert len(shown[:, :, 3].flatten(0, 1).unique(dim=0)) == 12
    seen = shown[:, :, 3:] == 1
    assert torch.equal(shown[:, :, :3].where(seen, 0), IMAGES[:, None].where(seen, 0))
    step = LatticeMasks(stride=3, pixels=2, per_image=20)
    marks = step.parts(IMAGES, IDS, STREAM)[:, :, 3].flatten(0, 1).flatten(1)
    owner = StridedPartition(height=8, width=8, stride=3).owner()
    hidden = [set(owner[row == 0].tolist()) for row in marks]
    assert {len(lattices) for lattices in hidden} == {2, 3, 4}
    for row, lattices in zip(marks, hidden, strict=True):
        assert torch.equal(row == 0, torch.isin(owner, torch.tensor(sorted(lattices))))


def vote_job(folder, step, **changes):
    job = make_job(folder, **changes)
    plain = replace(
        job.method,
        noise=NoNoise(),
        targets=SmoothedLabels().build(job.data.labels, 3),
        learns_from=None,
        inner=NoAttack(),
        objective=CleanObjective(),
    )
    with seeded("view network"):
        network = ViewNet(3, 4, widths=(8, 16), depths=(1, 1))
    watch = Watch((), Threat.of(1), 16, 1, 0.0, stop=False)
    return replace(job, network=network, method=step.build(plain), watch=watch, optim=SGD(lr=0.1))


STEPS = {
    PartitionVote(stride=3, per_image=2): ViewVoting,
    RandomAblation(keep=20): AblationSmoothing,
    LatticeMasks(stride=2): MaskCover,
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
def test_the_watch_proves_the_accuracy_of_the_classifier(tmp_path, step):
    job = vote_job(tmp_path, step, epochs=3)
    readings = [event for event in train(job) if isinstance(event, EpochDone)]
    assert readings[-1].probe_name == "certified at 1 pixel"
    assert readings[-1].training_attack is None
    model = job.method.classifier(job.network, (3, 8, 8), 3)
    assert type(model) is STEPS[step]
    clean, proved = proved_accuracy(model, job.data, job.reserved, 1)
    assert (clean, proved) == (readings[-1].clean, readings[-1].probe)
    assert 0 < proved <= clean


def test_resuming_is_exact_and_an_average_measures_its_statistics_on_parts(tmp_path):
    step, averaging = PartitionVote(stride=3, per_image=2), SWA(start=0.3, every=2, norm_images=40)

    def job(folder):
        return vote_job(tmp_path / folder, step, averaging=averaging, epochs=3)

    whole, cut, again = job("whole"), job("cut"), job("cut")
    train(whole)
    train(cut, stop_after=lambda e: isinstance(e, Saved) and "000000010" in e.path)
    train(again, resume=True)
    assert same(weights(whole), weights(again))


def test_parts_of_adversarial_images_are_refused(tmp_path):
    plain = replace(make_job(tmp_path).method, objective=TradesObjective())
    with pytest.raises(RecipeError, match="parts of clean images"):
        PartitionVote().build(plain)


@pytest.mark.parametrize("rule", ["plurality", "run-off"])
def test_no_attack_contradicts_a_certificate(tmp_path, rule):
    job = vote_job(tmp_path, PartitionVote(stride=3, per_image=4, rule=rule), epochs=12)
    train(replace(job, watch=replace(job.watch, images=0)))
    model = job.method.classifier(job.network, (3, 8, 8), 3).eval()
    images, labels = job.data.images(torch.arange(24)), job.data.labels[:24]
    with torch.no_grad():
        decided = model.decide(model.view_logits(images))
    report = robust0.audit(
        model, images, labels, eps=(1, 3), effort="smoke", attacks="sparse-rs,guided-swap"
    )
    right = decided.labels == labels
    assert right.sum() > 12
    for budget in report.results.budgets:
        proved = int((right & (decided.radius >= budget.budget)).sum())
        assert proved <= next(e for e in budget.ensembles if e.name == "worst-case").robust.count
