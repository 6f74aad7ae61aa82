"""Certificates side by side: in Python by their proofs, on the command line by their runs."""

import copy

import pytest
import torch

import robust0
from robust0.cli.app import run
from robust0.errors import RunError
from robust0.proofs import CertificateReport
from tests.certifying.conftest import RUN

LAST = 4


@torch.no_grad()
def radii(toy, rule):
    """The certified radius of every image; -1 where the answer is wrong."""
    network = copy.deepcopy(toy.network)
    network.rule = rule
    found = network.decide(network.view_logits(toy.images))
    return torch.where(found.labels == toy.labels, found.radius, -1).tolist()


def test_python_compares_what_it_certified(toy):
    other = copy.deepcopy(toy.network)
    other.rule = "run-off"
    first, second = (
        robust0.certify(network, toy.images, toy.labels, (1, LAST))
        for network in (toy.network, other)
    )
    found = robust0.compare(first, second)
    own = [radii(toy, rule) for rule in ("plurality", "run-off")]
    for pixels in (1, LAST):
        pair = found.pair("certified", pixels)
        a, b = ([radius >= pixels for radius in side] for side in own)
        assert pair.difference == pytest.approx(100 * (sum(b) - sum(a)) / 96)
        assert pair.only_other == tuple(i for i in range(96) if b[i] and not a[i])
    assert found.results.caveats == ("rule plurality -> run-off",)
    assert any(pair.only_first or pair.only_other for r in found.results.rows for pair in r.pairs)
    bare = CertificateReport(results=first.results, run=first.run)
    with pytest.raises(RunError, match="no proofs with it"):
        robust0.compare(first, bare)
    assert "proofs" not in first.model_dump()


def test_runs_compare_and_a_forged_one_does_not(ground, toy, capfd):
    for name, rule in (("plural", "make"), ("off", "run_off")):
        factory = [f"toy_votes:{rule}" if word == "toy_votes:make" else word for word in RUN]
        assert run([*factory, "--try", "0", "-o", name]) == 0
    capfd.readouterr()
    assert run(["compare", "plural", "off/report.json"]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "certified at 4 pixels" in shown
    assert "96 images" in shown
    proofs = ground / "off" / "proofs.jsonl"
    proofs.write_text(proofs.read_text().replace('"radius":3', '"radius":5'))
    assert run(["compare", "plural", "off"]) == 2
    assert "do not follow from the proofs" in capfd.readouterr().err
