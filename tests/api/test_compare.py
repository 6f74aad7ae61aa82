"""Comparisons in Python, of real audits of two small networks."""

import copy
import re
import sys
import warnings

import matplotlib as mpl
import pandas as pd
import pytest
import torch

import robust0
from robust0.cli.app import run
from robust0.errors import Robust0Error, RunError
from tests.auditing.conftest import toy as toy

SMALL = {"eps": [8, 4], "effort": "smoke", "attacks": "saa", "batch_size": 16, "progress": False}


@pytest.fixture(scope="module")
def reports(toy):
    """The toy, and the toy with its weights disturbed; the second on fewer images."""
    worse = copy.deepcopy(toy.network)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        for weight in worse.parameters():
            weight += 0.08 * torch.randn(weight.shape, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", robust0.EvaluationWarning)
        return [
            robust0.audit(network, toy.images[:count], toy.labels[:count], **SMALL)
            for network, count in ((toy.network, 24), (worse, 20))
        ]


def test_the_differences_are_those_of_the_reports(reports):
    found = robust0.compare(*reports)
    assert found.results.images == 20
    for name in ("clean", "saa", "sparse-rs", "worst-case"):
        for eps in (8, 4) if name != "clean" else (0,):
            a, b = (r.robust(name, eps=eps or None)[:20] for r in reports)
            pair = found.pair(name, eps)
            assert pair.difference == pytest.approx(5.0 * (int(b.sum()) - int(a.sum())))
            assert pair.only_first == tuple((a & ~b).nonzero().flatten().tolist())
            assert pair.only_other == tuple((b & ~a).nonzero().flatten().tolist())
    assert found.pair() == found.pair("worst-case", 8)
    assert any(found.pair(n, 8).only_first for n in ("saa", "sparse-rs")), "both alike say nothing"
    with pytest.raises(RunError, match="no number 'magic'"):
        found.pair("magic")


def test_table_plot_save_and_repr(reports, tmp_path, monkeypatch):
    found = robust0.compare(*reports)
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    rows = found.table()
    assert rows == found.rows()
    assert list(rows[0])[:5] == ["name", "eps", "A", "B", "B-A"]
    assert rows[0]["B-A"] == pytest.approx(rows[0]["B"] - rows[0]["A"])
    mpl.use("agg")
    axes = found.plot()
    assert [text.get_text()[0] for text in axes.get_legend().get_texts()] == ["A", "B"]
    page = found.save(tmp_path / "compared")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(RunError, match="other files"):
        found.save(tmp_path)
    assert "20 common images" in repr(found)
    assert found.verdicts[0] in repr(found)
    assert "<table>" in found._repr_html_()


def test_a_table_is_a_data_frame_where_pandas_is_installed(reports):
    found = robust0.compare(*reports)
    table = found.table()
    assert isinstance(table, pd.DataFrame)
    assert table.to_dict("records") == found.rows()
    assert (table["B-A"] - (table["B"] - table["A"])).abs().max() < 1e-9


def test_a_saved_run_says_the_same_and_an_edited_one_is_refused(reports, tmp_path, capsys):
    for name, report in zip("ab", reports, strict=True):
        report.save(tmp_path / name)
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert robust0.compare(*folders).results.rows == robust0.compare(*reports).results.rows
    path = tmp_path / "b" / "verdicts.jsonl"
    path.write_text(re.sub(r'"forwards": ?[0-9]+', '"forwards":987', path.read_text(), count=1))
    assert run(["compare", *folders]) == 2
    refusal = capsys.readouterr().err
    with pytest.raises(Robust0Error) as same:
        robust0.compare(reports[0], tmp_path / "b")
    assert same.value.message.split()[0] in refusal


def test_what_does_not_compare_is_refused(reports, toy):
    with pytest.raises(RunError, match="a dict is nothing that compares"):
        robust0.compare(reports[0], {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", robust0.EvaluationWarning)
        other = robust0.audit(toy.network, toy.images[24:32], toy.labels[:8], **SMALL)
    with pytest.raises(RunError, match="other pixels"):
        robust0.compare(reports[0], other)
    with pytest.raises(RunError, match="two or more"):
        robust0.compare(reports[0])
