"""From proofs to numbers, and which certificates are attacked: pure functions."""

from robust0.certifying.facts import CertifyFacts
from robust0.certifying.finish import extremes
from robust0.certifying.summary import summarise_proofs
from robust0.certifying.trying import tried_proofs
from robust0.proofs import Answer, CertifySettings, Proof, Trial
from robust0.records import Subject

SUBJECT = Subject(
    model="m", arch="a", sha256=None, method=None, dataset="d", split="test",
    data_fingerprint="f", image_ids="i", images=6, classes=2, mean=(), std=(),
)  # fmt: skip
SETTINGS = CertifySettings(
    kind="ablation", headline="it", classifiers=("it",), pixels=(1, 4), details={},
    expected_false=0.3, tried=2, effort="smoke", seed=0, device="cpu", torch="2",
)  # fmt: skip
FACTS = CertifyFacts(subject=SUBJECT, settings=SETTINGS, class_names=("cat", "dog"))


def proof(image, label, answer, radius):
    return Proof(image=image, label=label, answers={"it": Answer(label=answer, radius=radius)})


PROOFS = [
    proof(0, 0, 0, 5),
    proof(1, 0, 1, 4),  # wrong, and certified
    proof(2, 1, None, 0),  # abstained
    proof(3, 1, 1, 0),
    proof(4, 1, 1, 2),
    proof(5, 1, 1, 2),
]


def results(broken=()):
    trials = [
        Trial(
            classifier="it", attack="sparse-rs", revision=3, image=image, answer=1, radius=2,
            broke=image in broken, prediction=0, forwards=1, backwards=0,
        )
        for image in (4, 5)
    ]  # fmt: skip
    return summarise_proofs(FACTS, PROOFS, trials, None)


def test_right_wrong_and_abstained_are_told_apart():
    row = results().headline
    assert (row.clean.count, row.abstained) == (4, 1)
    assert [(p.pixels, p.certified.count, p.wrong) for p in row.points] == [
        (1, 3, 1), (2, 3, 1), (3, 1, 1), (4, 1, 1), (5, 1, 0),
    ]  # fmt: skip
    assert row.radii == {0: 1, 2: 2, 5: 1}
    assert row.median == 2  # three of six at two pixels, one at three
    assert row.at(0) == row.clean


def test_classes_and_trials_are_counted():
    row = results(broken=(5,)).headline
    assert [(c.name, c.images, c.clean, c.certified) for c in row.classes] == [
        ("cat", 2, 1, {1: 1, 4: 1}),
        ("dog", 4, 3, {1: 2, 4: 0}),
    ]
    (trial,) = row.trials
    assert (trial.tried, trial.broken, trial.images) == (2, 1, (5,))


def test_no_median_where_fewer_than_half_are_right():
    made = summarise_proofs(
        FACTS, [proof(0, 0, 1, 9), proof(1, 0, 1, 9), proof(2, 0, 0, 9)], [], None
    )
    assert made.headline.median is None


def test_extremes_are_right_answers_of_all_classes():
    strongest, weakest = extremes(FACTS, PROOFS, most=2)
    assert strongest == [0, 4]
    assert weakest == [3, 5]


def test_certificates_are_tried_by_radius_and_wrong_answers_too():
    def images(most, rows):
        return {g.radius: g.images for g in tried_proofs(PROOFS, "it", most, rows)}

    assert images(9, 16) == {2: (4, 5), 4: (1,), 5: (0,)}
    assert images(2, 16) == {2: (4, 5)}  # the most frequent radius fills one call
    assert images(3, 1) == {2: (4,), 4: (1,), 5: (0,)}
    assert images(4, 1) == {2: (4, 5), 4: (1,), 5: (0,)}
    assert images(0, 16) == {}
