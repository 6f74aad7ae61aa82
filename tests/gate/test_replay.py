import numpy as np
import pytest
import torch
from torch import nn

from robust0.auditing.rundata import read_run
from robust0.errors import RunError
from robust0.gate.baseline import StoredAttempt, of_run
from robust0.gate.replay import ordered, painted, replay
from tests.auditing.factory_report import Recipe, make_run

CLASSES = ("dark", "bright")


class Brightness(nn.Module):
    """Says bright when more than ``limit`` of the values exceed one half; counts are exact."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = nn.Parameter(torch.tensor(limit))

    def forward(self, images):
        above = (images > 0.5).flatten(1).sum(dim=1) - self.limit
        return torch.stack([-above, above], dim=1).float()


@pytest.fixture
def baseline(tmp_path):
    """Images with 10, 20, ... bright values of 64, label dark; no attack broke any."""
    pixels = np.zeros((6, 1, 8, 8), np.uint8)
    for row in range(6):
        pixels[row].reshape(-1)[: 5 * row] = 255
    recipe = Recipe(
        images=6, channels=1, classes=CLASSES, wrong=(), breaks=lambda i, a, b: i == 100,
        pixels=pixels, labels=np.zeros(6, np.int64),
    )  # fmt: skip
    made = of_run(read_run(make_run(tmp_path / "run", recipe)), attempts=100)
    attempts = [brighten(attempt, 60, 3) for attempt in made.attempts]
    return made.model_copy(update={"attempts": tuple(attempts)}), torch.from_numpy(pixels) / 255.0


def brighten(attempt, first, count):
    """The same attempt, making ``count`` pixels bright."""
    values = {"places": tuple(range(first, first + count)), "values": ((1.0,),) * count}
    return StoredAttempt(**{**attempt.model_dump(), **values})


def run(baseline, limit, **changes):
    made, images = baseline
    labels, ids = torch.zeros(6, dtype=torch.int64), torch.arange(100, 106)
    given = {"images": images, "labels": labels, "ids": ids, **changes}
    return replay(Brightness(limit), made, **given)


def test_counts_follow_from_the_model(baseline):
    # Bright values with the attempt: 3, 8, 13, 18, 23, 28 (image 100 is a hit of the baseline).
    assert run(baseline, 30.5).newly_broken == 0
    strong = run(baseline, 20.5)  # images 104 (20 clean, 23 attacked) and 105 (25 clean)
    assert (strong.survivors, strong.newly_broken, strong.newly_wrong) == (5, 2, 1)
    assert (strong.hits, strong.still_hits) == (1, 0)
    weak = run(baseline, 2.5)
    assert (weak.newly_broken, weak.newly_wrong, weak.still_hits) == (5, 5, 1)
    assert weak.points == pytest.approx(100 * 5 / 6)
    assert "5 of 5 attempts" in weak.sentence()


def test_the_model_is_left_as_it_was(baseline):
    made, images = baseline
    model = Brightness(20.5).train()
    replay(model, made, images, torch.zeros(6, dtype=torch.int64), torch.arange(100, 106))
    assert model.training
    assert model.limit.requires_grad
    assert model.limit.grad is None


def test_more_sites_than_the_budget_never_count(baseline):
    made, images = baseline
    wide = tuple(brighten(attempt, 40, 20) for attempt in made.attempts)
    result = run((made.model_copy(update={"attempts": wide}), images), 39.5)
    assert result.newly_broken == 0  # 20 pixels would do it; 3 are allowed


def test_only_images_at_hand_are_tried(baseline):
    _, images = baseline
    some = torch.tensor([5, 3])
    result = run(
        baseline, 20.5, images=images[some], labels=torch.zeros(2, dtype=torch.int64),
        ids=some + 100,
    )  # fmt: skip
    assert (result.survivors, result.hits, result.newly_broken) == (2, 0, 1)


def test_other_labels_are_refused(baseline):
    with pytest.raises(RunError, match="other labels"):
        run(baseline, 20.5, labels=torch.ones(6, dtype=torch.int64))


def test_the_lowest_margin_comes_first(baseline):
    made, _ = baseline
    margins = [attempt.margin for attempt in ordered(made, made.ids)]
    assert margins == sorted(margins)


def test_nothing_to_replay_is_refused(baseline):
    made, _ = baseline
    with pytest.raises(RunError, match="no attempts on these images"):
        ordered(made, [1])
    with pytest.raises(RunError, match="carries no attempts"):
        ordered(made.model_copy(update={"attempts": ()}), made.ids)


def test_attempts_on_other_images_are_refused(baseline):
    made, _ = baseline
    for shape in ((1, 4, 4), (3, 2, 2)):
        with pytest.raises(RunError, match="does not fit"):
            painted(made.attempts[0], np.zeros(shape, np.float32))
    colour = StoredAttempt(**{**made.attempts[0].model_dump(), "values": ((1.0,) * 3,) * 3})
    with pytest.raises(RunError, match="does not fit"):
        painted(colour, np.zeros((1, 8, 8), np.float32))
