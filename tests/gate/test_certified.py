"""Certificates in a gate: floors, drops paired by image, what is refused."""

from fractions import Fraction

import pytest

from robust0.errors import EvaluationError, RecipeError, RunError
from robust0.gate.certified import (
    CertificateBaseline,
    certified_drops,
    read_certificate_baseline,
    refuse_broken,
    require_comparable_certificates,
    write_certificate_baseline,
)
from robust0.gate.metrics import parse_metric
from robust0.proofs import CertifySettings
from robust0.records import Subject

SUBJECT = Subject(
    model="m", arch="a", sha256=None, method=None, dataset="d", split="test",
    data_fingerprint="f", image_ids="i", images=8, classes=3, mean=(), std=(),
)  # fmt: skip
SETTINGS = CertifySettings(
    kind="partition-vote", headline="plurality", classifiers=("plurality", "soft"),
    pixels=(1, 5), details={"views": 25}, expected_false=None, tried=0, effort="smoke", seed=0,
    device="cpu", torch="2",
)  # fmt: skip


def baseline(radii, soft=None, ids=None, **settings):
    images = tuple(range(len(radii))) if ids is None else ids
    return CertificateBaseline(
        robust0="0", subject=SUBJECT, settings=SETTINGS.model_copy(update=settings), ids=images,
        labels=(0,) * len(images), radii={"plurality": radii, "soft": soft or radii},
    )  # fmt: skip


def test_a_drop_is_paired_by_image_whatever_their_order():
    before = baseline((6, 5, 1, -1, 0, 7, 5, 5))
    after = baseline((5, 5, 7, 0, -1, 1, 5, 6), ids=(7, 6, 5, 4, 3, 2, 1, 0))
    (check,) = certified_drops(before, after, [parse_metric("certified@5")], Fraction(0), "strict")
    assert (check.paired.worse, check.paired.better) == (0, 0)
    assert check.passed
    assert check.value == pytest.approx(62.5)


def test_every_number_of_pixels_asked_about_is_compared_by_default():
    before, after = baseline((6, 5, 1, -1)), baseline((6, 4, 1, -1))
    checks = certified_drops(before, after, [], Fraction(1), "strict")
    assert [(c.metric, c.passed) for c in checks] == [
        ("certified at 1 pixel", True),
        ("certified at 5 pixels", False),
    ]
    (clean,) = certified_drops(before, after, [parse_metric("clean")], Fraction(1), "strict")
    assert clean.passed
    assert clean.value == 75.0


def test_a_drop_within_chance_passes_where_it_must_be_significant():
    before, after = baseline((6,) * 8), baseline((6,) * 7 + (0,))
    metric = [parse_metric("certified@5")]
    assert not certified_drops(before, after, metric, Fraction(1), "strict")[0].passed
    assert certified_drops(before, after, metric, Fraction(1), "significant")[0].passed
    worse = baseline((0,) * 8)
    assert not certified_drops(before, worse, metric, Fraction(1), "significant")[0].passed


def test_a_rule_is_compared_with_itself():
    before = baseline((6, 6), soft=(1, 1))
    after = baseline((6, 6), soft=(0, 0))
    rows = [parse_metric("soft@1"), parse_metric("plurality@1")]
    assert [c.passed for c in certified_drops(before, after, rows, Fraction(1), "strict")] == [
        False,
        True,
    ]


@pytest.mark.parametrize("name", ["certified@3", "run-off@5", "saa"])
def test_a_number_that_is_not_there_is_refused(name):
    side = baseline((1, 2))
    with pytest.raises(RecipeError):
        certified_drops(side, side, [parse_metric(name)], Fraction(1), "strict")


def test_what_was_not_proved_alike_is_refused():
    side = baseline((1, 2))
    require_comparable_certificates(side, side)
    ablation = {"kind": "ablation", "details": {"alpha": 0.05}}
    others = [
        (side, baseline((1, 2, 3)), "images 2 -> 3"),
        (side, baseline((1, 2), kind="masks"), "kind of certificate"),
        (side, baseline((1, 2), ids=(4, 5)), "labels of the images"),
        (baseline((1, 2), **ablation), baseline((1, 2), kind="ablation", details={}), "alpha"),
    ]
    for before, after, words in others:
        with pytest.raises(RunError, match=words):
            require_comparable_certificates(before, after)


def test_a_baseline_is_read_as_written_and_replaces_no_other_file(tmp_path):
    side, path = baseline((1, -1)), tmp_path / "baseline.json"
    write_certificate_baseline(path, side)
    assert read_certificate_baseline(path) == side
    write_certificate_baseline(path, side)
    path.write_text('{"kind": "robust0-baseline"}')
    for action in (read_certificate_baseline, lambda p: write_certificate_baseline(p, side)):
        with pytest.raises(RunError, match="is not the baseline of a certificate"):
            action(path)
    path.write_text(side.model_dump_json(by_alias=True).replace("[1,-1]", "[1]"))
    with pytest.raises(RunError, match="one entry per image"):
        read_certificate_baseline(path)


def test_a_refuted_certificate_is_no_number():
    from tests.certifying.test_summary import results

    refuse_broken(results())
    with pytest.raises(EvaluationError, match="image 4 "):
        refuse_broken(results(broken=(4,)))
