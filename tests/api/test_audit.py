import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from robust0.api import AuditReport, audit
from robust0.errors import DataError, ModelError, RecipeError
from robust0.events import AuditStarted
from tests.auditing.conftest import toy as toy

pytestmark = pytest.mark.filterwarnings("ignore::robust0.EvaluationWarning")
SMALL = {"eps": np.int64(8), "effort": "smoke", "attacks": "saa", "batch_size": 16}


def test_a_module_and_arrays_give_a_report(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy.network.train()
    events = []
    report = audit(
        toy.network, toy.images[:24].numpy(), toy.labels[:24].numpy().astype(np.uint8),
        progress=events.append, **SMALL,
    )  # fmt: skip
    assert isinstance(report, AuditReport)
    assert toy.network.training
    toy.network.eval()
    assert isinstance(events[0], AuditStarted)
    assert report.results.clean.images == 24
    assert [row.name for row in report.results.budgets[0].ensembles] == ["saa", "worst-case"]
    assert report.run.attack_seconds.keys() == {"sparse-pgd-p", "sparse-pgd-u", "sparse-rs"}
    assert list(tmp_path.iterdir()) == []
    again = audit(toy.network, toy.images[:24], toy.labels[:24].tolist(), **SMALL)
    assert again.results == report.results


def test_budgets_units_modes_and_seeds(toy):
    report = audit(
        toy.network, toy.images[:16], toy.labels[:16], eps=[6, np.int64(12)], effort="smoke",
        attacks=["saif", "sparse-rs"], unit="feature", mode="cascade", seed=3, batch_size=16,
    )  # fmt: skip
    settings = report.results.settings
    assert (settings.budgets, settings.unit, settings.mode, settings.seed) == (
        (12, 6), "feature", "cascade", 3,
    )  # fmt: skip


def test_a_compiled_wrapper_is_a_module_too(toy):
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self._orig_mod = toy.network

        def forward(self, images):
            return self._orig_mod(images).to(memory_format=torch.contiguous_format)[:, :]

    report = audit(Wrapper(), toy.images[:16], toy.labels[:16], **SMALL)
    assert report.results.clean.images == 16


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"module": lambda images: images}, ModelError, "got a function"),
        ({"eps": 0}, RecipeError, "at least 1"),
        ({"eps": []}, RecipeError, "at least 1"),
        ({"eps": 2.5}, RecipeError, "whole numbers"),
        ({"eps": True}, RecipeError, "whole numbers"),
        ({"eps": 121}, RecipeError, "exceeds the 120 pixels"),
        ({"labels": torch.full((4,), 4)}, ModelError, "4 classes"),
        ({"images": torch.rand(4, 3, 10, 12) * 255}, DataError, r"\[0, 1\]"),
        ({"attacks": "sparse"}, RecipeError, "no attack or group"),
        ({"effort": "long"}, RecipeError, "effort"),
        ({"unit": "patch"}, RecipeError, "patch"),
        ({"batch_size": 3}, RecipeError, "at least 16"),
    ],
)
def test_refusals(toy, changes, error, message):
    given = {"module": toy.network, "images": toy.images[:4], "labels": toy.labels[:4], **SMALL}
    with pytest.raises(error, match=message):
        audit(**(given | changes))


def test_ctrl_c_is_not_swallowed(toy):
    def press(event):
        if isinstance(event, AuditStarted):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        audit(toy.network, toy.images[:16], toy.labels[:16], progress=press, **SMALL)
