"""What an audit in Python returns, and what it takes."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import robust0
from robust0.cli.app import run
from robust0.errors import DataError, ModelError, RecipeError, Robust0Error, RunError
from tests.auditing.conftest import toy as toy

SMALL = {"eps": 8, "effort": "smoke", "attacks": "saa", "batch_size": 16, "progress": False}
IGNORED = pytest.mark.filterwarnings("ignore::robust0.EvaluationWarning")


@pytest.fixture(scope="module")
def report(toy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", robust0.EvaluationWarning)
        return robust0.audit(
            toy.network, toy.images[:24], toy.labels[:24], **SMALL | {"eps": [8, 4]}
        )


def answers(toy, images):
    with torch.no_grad():
        return toy.network(images).argmax(dim=1)


def test_verdicts_and_adversarial_images_are_tensors_that_agree(toy, report):
    images, labels = toy.images[:24], toy.labels[:24]
    assert torch.equal(report.images, images)
    right = answers(toy, images) == labels
    assert torch.equal(report.robust("clean"), right)
    assert torch.equal(report.predictions(), answers(toy, images))
    for eps in (8, 4):
        robust, broken = report.robust(eps=eps), report.adversarial(eps=eps)
        assert int(robust.sum()) == report.accuracy(eps=eps).count
        assert robust.sum() < right.sum(), (
            "something must have been broken for this to say anything"
        )
        # What is handed out breaks the network, within the budget, exactly where it says.
        assert torch.equal(answers(toy, broken) == labels, robust)
        assert int((broken != images).any(dim=1).sum(dim=(1, 2)).max()) <= eps
        assert torch.equal(broken[robust], images[robust])
        tried = report.adversarial(eps=eps, closest=True)
        assert torch.equal(tried[~robust], broken[~robust])
        changed = (tried[robust] != images[robust]).any(dim=1).sum(dim=(1, 2))
        assert 0 < int(changed.max()) <= eps
        # What stands at the larger budget is not attacked at the smaller one again.
        assert eps == 4 or int(changed.min()) > 0
        assert torch.equal(answers(toy, tried[robust]), labels[robust])
    single = report.robust("sparse-rs", eps=8)
    assert int(single.sum()) == report.accuracy("sparse-rs", eps=8).count
    fooled = single.logical_not() & right
    assert torch.equal(
        report.predictions("sparse-rs", eps=8)[fooled],
        answers(toy, report.adversarial("sparse-rs", eps=8))[fooled],
    )
    with pytest.raises(RecipeError, match="no eps 5"):
        report.robust(eps=5)
    with pytest.raises(RecipeError, match="one of clean, saa"):
        report.adversarial("magic")


def test_table_plot_save_and_repr(report, tmp_path, monkeypatch, capsys):
    names = [row["name"] for row in report.rows()]
    assert names[:2] == ["clean", "sparse-pgd-p"]
    assert names.count("worst-case") == 2
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    assert report.table() == report.rows()
    mpl.use("agg")
    axes = report.plot()
    assert axes.get_xlabel() == "changed pixels"
    assert "upper bound" in axes.get_ylabel()
    page = report.save(tmp_path / "run")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run(["report", str(tmp_path / "run"), "--output-format", "json"]) == 0
    with pytest.raises(RunError, match="is not empty"):
        report.save(tmp_path / "run")
    shown = repr(report)
    assert "24 images of 10x12" in shown
    assert "clean" in shown
    assert "worst case at 8" in shown or "worst-case at 8" in shown
    assert "<table>" in report._repr_html_()
    assert run(["audit", "--resume", str(tmp_path / "run")]) == 2
    assert "made by the Python API" in capsys.readouterr().err


def test_a_table_is_a_data_frame_where_pandas_is_installed(report):
    table = report.table()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == list(report.rows()[0])
    assert table["name"].tolist() == [row["name"] for row in report.rows()]
    assert all(table[name].dtype.kind == "f" for name in ("accuracy", "low", "high"))
    assert all(table[name].dtype.kind == "i" for name in ("eps", "images"))
    worst = table[table["name"].eq("worst-case") & table["eps"].eq(8)]
    assert worst["accuracy"].item() == report.accuracy(eps=8).share
    assert worst["median_passes"].isna().all()  # a group of attacks has no passes of its own


class Pairs(torch.utils.data.Dataset):
    def __init__(self, toy):
        self.toy = toy

    def __len__(self):
        return 24

    def __getitem__(self, at):
        if at >= len(self):
            raise IndexError
        return self.toy.images[at], int(self.toy.labels[at])


def forms(toy):
    """The same 24 images as people hold them."""
    images, labels = toy.images[:24], toy.labels[:24]
    return {
        "pair": ((images, labels),),
        "dataset": (Pairs(toy),),
        "tensor dataset": (TensorDataset(images, labels),),
        "loader": (DataLoader(TensorDataset(images, labels), batch_size=7),),
        "mappings": ([{"pixel_values": image, "label": int(label)}
                      for image, label in zip(images, labels, strict=True)],),
        "float64": (images.double(), labels.to(torch.int32)),
    }  # fmt: skip


@IGNORED
def test_images_come_in_every_usual_form(toy, report):
    expected = report.robust(eps=8)
    for name, given in forms(toy).items():
        found = robust0.audit(toy.network, *given, **SMALL)
        assert torch.equal(found.robust(), expected), name
    assert len(robust0.audit(toy.network, Pairs(toy), limit=16, **SMALL).images) == 16


@IGNORED
def test_bytes_and_grey_images_are_taken_with_a_note(toy):
    pixels = (toy.images[:16] * 255).round().to(torch.uint8)
    with pytest.warns(robust0.EvaluationWarning, match="divided by 255"):
        report = robust0.audit(toy.network, pixels, toy.labels[:16], **SMALL)
    assert torch.equal(report.images, pixels / 255)
    grey = nn.Sequential(nn.Flatten(), nn.Linear(30, 3))
    with pytest.warns(robust0.EvaluationWarning, match="16 grey images"):
        report = robust0.audit(
            grey, np.random.default_rng(0).random((16, 6, 5)), np.arange(16) % 3, **SMALL
        )
    assert report.images.shape == (16, 1, 6, 5)


class Answers(nn.Module):
    """A network of another library: its answer is more than logits."""

    def __init__(self, network, form):
        super().__init__()
        self.network, self.form = network, form

    def forward(self, pixel_values):
        logits = self.network(pixel_values)
        return {
            "object": SimpleNamespace(logits=logits, loss=None, hidden_states=(logits,)),
            "mapping": {"logits": logits, "features": logits},
            "tuple": (logits, pixel_values),
            "two": (logits, logits),
        }[self.form]


@IGNORED
@pytest.mark.parametrize(
    ("form", "taken"), [("object", r"\.logits"), ("mapping", r"\['logits'\]"), ("tuple", r"\[0\]")]
)
def test_logits_are_found_and_named(toy, report, form, taken):
    with pytest.warns(robust0.EvaluationWarning, match=taken):
        found = robust0.audit(Answers(toy.network, form), toy.images[:24], toy.labels[:24], **SMALL)
    assert torch.equal(found.robust(), report.robust(eps=8))
    assert found.results.subject.arch == "Answers"


@IGNORED
def test_a_data_parallel_module_is_a_module(toy, report):
    found = robust0.audit(nn.DataParallel(toy.network), toy.images[:24], toy.labels[:24], **SMALL)
    assert torch.equal(found.robust(), report.robust(eps=8))


def test_flags_are_raised_as_warnings(toy, report):
    assert report.results.flags
    with pytest.warns(robust0.EvaluationWarning) as raised:
        robust0.audit(toy.network, toy.images[:24], toy.labels[:24], **SMALL)
    said = [str(warning.message) for warning in raised]
    assert any(text.startswith(report.results.flags[0].name) for text in said)
    assert raised[0].filename == __file__, "the warning names the caller's line"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"batch_size": 3}, RecipeError), ({"eps": 0}, RecipeError), ({"eps": 121}, RecipeError),
        ({"attacks": "sparse"}, RecipeError), ({"effort": "long"}, RecipeError),
        ({"images": torch.rand(4, 3, 10, 12) * 255}, DataError), ({"labels": None}, DataError),
        ({"module": 3}, ModelError), ({"unit": "patch"}, RecipeError),
    ],
)  # fmt: skip
def test_refusals_bring_their_hint_and_no_words_of_the_command_line(toy, changes, error):
    given = {"module": toy.network, "images": toy.images[:4], "labels": toy.labels[:4], **SMALL}
    with pytest.raises(error) as refusal:
        robust0.audit(**(given | changes))
    text = str(refusal.value)
    assert refusal.value.hint in text
    assert text.count("\n") == bool(refusal.value.hint)
    assert "--" not in text
    with pytest.raises(ModelError, match="no tensor is plainly the logits"):
        robust0.audit(Answers(toy.network, "two"), toy.images[:4], toy.labels[:4], **SMALL)


@pytest.mark.parametrize("source", ["nothing", "none.safetensors", "resnet18", None, "."])
def test_a_model_that_cannot_be_loaded_is_explained_without_a_shell(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Robust0Error) as refusal:
        robust0.load(source)
    assert "--" not in str(refusal.value)
    assert "robust0 " not in str(refusal.value)


def test_importing_robust0_imports_no_torch_and_has_types():
    script = "import sys, robust0; dir(robust0); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    import importlib.resources

    assert importlib.resources.files("robust0").joinpath("py.typed").is_file()
    assert set(robust0.__all__) <= set(dir(robust0))
    with pytest.raises(AttributeError):
        _ = robust0.nothing
