"""Files of schema 1 keep their meaning."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from robust0 import upgrades
from robust0.auditing.attempts import read_attempts
from robust0.models.metadata import Budget
from robust0.records import Verdict

OLD = {
    "image": 3, "label": 1, "attack": "sparse-rs", "revision": 1, "unit": "pixel", "budget": 20,
    "fooled": True, "prediction": 2, "margin": -0.5, "sites": 20, "pruned": 7, "forwards": 9,
    "backwards": 0, "fragile": False, "violation": "",
}  # fmt: skip


def test_a_verdict_of_schema_1():
    verdict = Verdict.model_validate(upgrades.verdict(OLD))
    assert (verdict.distance, verdict.needed) == (20, 7)
    assert upgrades.verdict(verdict.model_dump()) == verdict.model_dump()


@pytest.mark.parametrize(
    "upgrade", [upgrades.report, upgrades.baseline, upgrades.run_file, upgrades.card]
)
@pytest.mark.parametrize(
    "document", [None, 3, [], {}, {"schema": 2}, {"schema": True}, {"schema": 7}]
)
def test_what_is_not_of_schema_1_comes_back_unchanged(upgrade, document):
    assert upgrade(document) == document


def test_budgets_of_a_checkpoint():
    facts = upgrades.budgets({"eval_budget": {"unit": "feature", "sites": 60}, "seed": 1})
    assert Budget(**facts["eval_budget"]) == Budget(unit="feature", amount=60)
    assert facts["seed"] == 1


def test_attempts_of_schema_1(tmp_path):
    notes = {"schema": 1, "unit": "pixel", "image_shape": [3, 2, 2], "attacks": ["a"]}
    arrays = {
        "image": np.array([5]), "attack": np.array([0]), "budget": np.array([2]),
        "start": np.array([0, 1]), "sites": np.array([3], np.int32),
        "values": np.ones((1, 3), np.float32),
    }  # fmt: skip
    path = tmp_path / "attempts.safetensors"
    path.write_bytes(save(arrays, metadata={"robust0": json.dumps(notes)}))
    found = read_attempts(path).found
    assert list(found) == [(2, "a", 5)]
    assert found[2, "a", 5].places.tolist() == [3]


def test_a_report_of_schema_1_has_its_numbers():
    """An audit as an earlier version wrote it."""
    document = json.loads((Path(__file__).parent / "report-schema-1.json").read_text())
    assert document["schema"] == 1
    new = upgrades.report(document)
    rows = [row for entry in document["results"]["budgets"] for row in entry["attacks"]]
    read = [row for entry in new["results"]["budgets"] for row in entry["attacks"]]
    assert [row["median_distance"] for row in read] == [row["median_sites"] for row in rows]
    assert (
        new["results"]["settings"]["batch_size"] == document["results"]["settings"]["compute_rows"]
    )
