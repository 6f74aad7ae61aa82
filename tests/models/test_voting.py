"""Classifiers that can be certified: the module, its certificates and its checkpoint agree."""

import json

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from robust0 import load
from robust0.certificates.partition import StridedPartition, WalkingPartition
from robust0.errors import ModelError
from robust0.models.build import NetworkSpec, build
from robust0.models.checkpoint import Metadata, save_checkpoint
from robust0.models.classifiers import AblationNotes, MaskNotes, PartitionVoteNotes
from robust0.models.voting import AblationSmoothing, MaskCover, ViewVoting, content_ids
from robust0.rng import Stream, seeded

CLASSES = 5
RULES = ("plurality", "run-off", "soft")


def network(channels: int = 4, scale: float = 30.0) -> nn.Module:
    with seeded("test", channels):
        body = nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        last = nn.Linear(8, CLASSES)
        last.weight.data *= scale
    return nn.Sequential(body, last).eval()


def pictures(count: int, side: int = 8) -> torch.Tensor:
    ids = torch.arange(count)
    draws = Stream.of("pictures").uniform(ids, ids * 0, 3 * side * side)
    return draws.view(count, 3, side, side)


def voting(rule: str = "plurality", **options: object) -> ViewVoting:
    partition = StridedPartition(height=8, width=8, stride=3)
    return ViewVoting(network(), partition, rule, CLASSES, **options)


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("rule", RULES)
@torch.no_grad()
def test_the_scores_say_what_the_certificate_says(rule, mirror):
    model, images = voting(rule, mirror=mirror), pictures(40)
    decided = model.decide(model.view_logits(images))
    scores = model(images)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, scores.round())
    assert torch.equal(scores.argmax(dim=1), decided.labels)
    assert all(len(set(row)) == CLASSES for row in scores.tolist())  # no ties are left
    assert len(set(decided.labels.tolist())) > 1


@pytest.mark.parametrize("rule", RULES)
@torch.no_grad()
def test_what_a_search_climbs_has_the_argmax_of_the_votes(rule):
    model, images = voting(rule), pictures(40)
    climbed, smooth = model.both(images)
    assert torch.equal(smooth, model.surrogate(images))
    assert climbed.isfinite().all()
    assert torch.equal(climbed.argmax(dim=1), model(images).argmax(dim=1))
    if rule != "soft":  # unlike the votes, it tells apart images whose votes are the same
        assert len(climbed.unique(dim=0)) > len(model(images).unique(dim=0))


def quick_voting() -> ViewVoting:
    """Views of 4x4 pixels, for which the network has a quicker form."""
    with seeded("quick"):
        inner = timm.create_model("viewnet", num_classes=CLASSES, widths=[96], depths=[1])
    partition = StridedPartition(height=8, width=8, stride=2)
    return ViewVoting(inner.eval(), partition, "plurality", CLASSES)


def test_the_quicker_form_of_a_network_is_used_where_weights_want_no_gradient():
    model, images = quick_voting(), pictures(3)
    plain = torch.stack([model.network(views) for views in model.partition.split(images)])
    with torch.no_grad():
        quick = model.view_logits(images)
    assert torch.allclose(quick, plain, atol=1e-4 * plain.std().item())
    assert not torch.equal(quick, plain)
    learning = model.view_logits(images)
    assert torch.equal(learning, plain)
    learning.sum().backward()
    assert all(weight.grad is not None for weight in model.network.parameters())
    frozen = model.requires_grad_(False)
    assert torch.equal(frozen.view_logits(images), quick)
    model.train()
    with torch.no_grad():
        assert not torch.allclose(model.view_logits(images), plain, atol=1e-2)  # batch statistics


@pytest.mark.parametrize("make", [voting, quick_voting])
@torch.no_grad()
def test_a_view_does_not_depend_on_the_company_of_its_call(make):
    model, images = make(), pictures(33)
    together = model.view_logits(images)
    alone = torch.cat([model.view_logits(images[i : i + 1]) for i in range(33)])
    assert torch.equal(together, alone)
    backwards = model.view_logits(images.flip(0)).flip(0)
    assert torch.equal(together, backwards)


@torch.no_grad()
def test_a_changed_pixel_changes_one_view_alone():
    model, images = voting(mirror=True), pictures(4)
    changed = images.clone()
    changed[:, :, 4, 5] = 1 - changed[:, :, 4, 5]
    moved = (model.view_logits(images) != model.view_logits(changed)).any(dim=2)
    assert moved.nonzero()[:, 1].unique().tolist() == [1 * 3 + 2]


def test_the_surrogate_is_the_log_of_the_mean_probability_and_has_gradients():
    model, images = voting(), pictures(3).requires_grad_()
    answer = model.surrogate(images)
    mean = model.view_logits(images).softmax(dim=2).mean(dim=1)
    assert torch.allclose(answer.exp(), mean, atol=1e-6)
    answer[:, 0].sum().backward()
    assert images.grad is not None
    assert (images.grad.abs().amax(dim=1) > 0).float().mean() > 0.5
    assert not model(images).requires_grad


@torch.no_grad()
def test_masked_views_vote_too():
    partition = WalkingPartition(height=8, width=8, views=7)
    model = ViewVoting(network(), partition, "plurality", CLASSES)
    images = pictures(4)
    changed = images.clone()
    changed[:, :, 0, 3] = 1 - changed[:, :, 0, 3]
    moved = (model.view_logits(images) != model.view_logits(changed)).any(dim=2)
    assert moved.nonzero()[:, 1].unique().tolist() == [3]


@torch.no_grad()
def test_ablation_counts_samples_by_image_number_and_purpose():
    model = AblationSmoothing(network(), keep=12, classes=CLASSES, samples=20)
    images, ids = pictures(5), torch.arange(5)
    counts = model.counts(images, ids, range(40), "bound")
    assert counts.dtype == torch.int64
    assert counts.sum(dim=1).tolist() == [40] * 5
    parts = [model.counts(images, ids, part, "bound") for part in (range(17), range(17, 40))]
    assert torch.equal(parts[0] + parts[1], counts)
    assert torch.equal(model.counts(images[3:], ids[3:], range(40), "bound"), counts[3:])
    assert not torch.equal(model.counts(images, ids, range(40), "choose"), counts)
    shown = model.ablated(images, ids, range(3), "choose")[:, 3]
    assert shown.sum(dim=(1, 2)).tolist() == [12.0] * 15


@torch.no_grad()
def test_an_ablating_classifier_is_a_function_of_the_image():
    model, images = AblationSmoothing(network(), keep=12, classes=CLASSES), pictures(6)
    answer = model(images)
    assert torch.equal(model(images.flip(0)).flip(0), answer)
    counts = model.counts(images, content_ids(images), range(100), "answer")
    assert torch.equal(answer.argmax(dim=1), counts.argmax(dim=1))
    assert torch.equal(model.both(images)[0].argmax(dim=1), answer.argmax(dim=1))
    signed = torch.where(images < 0.5, torch.zeros(()), images)
    assert torch.equal(content_ids(signed), content_ids(torch.where(signed == 0, -0.0, signed)))


@torch.no_grad()
def test_mask_cover_answers_as_its_certificate_promises():
    lattices = StridedPartition(height=8, width=8, stride=2)
    model, images = MaskCover(network(scale=3.0), lattices, 1, CLASSES), pictures(24)
    decided = model.decide(images)
    assert set(decided.radius.tolist()) == {0, 1}
    assert torch.equal(model(images).argmax(dim=1), decided.labels)
    sure = decided.radius == 1
    for site in range(0, 64, 3):
        for colour in (0.0, 1.0):
            changed = images[sure].flatten(2).clone()
            changed[:, :, site] = colour
            answer = model(changed.view(-1, 3, 8, 8)).argmax(dim=1)
            assert torch.equal(answer, decided.labels[sure])


NOTES = [
    PartitionVoteNotes(stride=5, rule="run-off", mirror=True),
    PartitionVoteNotes(partition="walking", views=11),
    PartitionVoteNotes(partition="random", views=9, seed=4, rule="soft"),
    AblationNotes(keep=75, seed=3, samples=10),
    MaskNotes(stride=3, pixels=2),
]


@pytest.mark.parametrize("notes", NOTES, ids=lambda n: f"{n.kind}-{getattr(n, 'partition', '')}")
@torch.no_grad()
def test_a_checkpoint_brings_the_whole_classifier_back(notes, tmp_path):
    size = notes.inner_size((3, 32, 32))
    spec = NetworkSpec("preact_resnet18_w8", 10, size, (0.4,) * 3 + (0.0,), (0.2,) * 3 + (1.0,))
    inner = build(spec)
    facts = {"input_size": (3, 32, 32), "mean": (0.4,) * 3, "std": (0.2,) * 3}
    metadata = Metadata.of(spec, classifier=notes, **facts)
    model = notes.wrap(inner, (3, 32, 32), 10).eval()
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, model, metadata)
    again = load(path)
    assert type(again) is type(model)
    images = pictures(2, side=32)
    assert torch.equal(again(images), model(images))
    # Plain timm loads the network inside.
    with safe_open(path, framework="pt") as file:
        said = file.metadata()
    arguments = json.loads(said["arch_args"])
    assert arguments["in_chans"] == 4
    plain = timm.create_model(said["arch"], **arguments)
    plain.load_state_dict(load_file(path), strict=True)


@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "partition-vote", "stride": 5, "views": 3},
        {"kind": "partition-vote", "stride": 33},
        {"kind": "partition-vote", "partition": "random"},
        {"kind": "ablation", "keep": 1025},
        {"kind": "masks", "stride": 1, "pixels": 2},
        {"kind": "masks", "stride": 0},
        {"kind": "other"},
    ],
)
def test_a_classifier_that_cannot_be_is_refused(facts):
    spec = NetworkSpec("preact_resnet18_w8", 10, (3, 32, 32), (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(ModelError, match="cannot be described"):
        Metadata.of(spec, classifier=facts)
