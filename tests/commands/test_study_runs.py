import pytest

from robust0.commands.study_runs import _early_stopping
from robust0.recipes.load import load_recipe


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["training.inner.steps=20"], (True, True)),
        (["training.inner.steps=20", "training.inner.early_stopping=false"], (False, False)),
        (["training.inner.steps=20", "training.inner.stop_early=false"], (False, True)),
        (["training.method=standard"], (None, None)),
    ],
)
def test_both_halves_of_early_stopping_are_shown_as_they_run(changes, said):
    inner = load_recipe("quick", overrides=changes).recipe.training.inner
    found = _early_stopping(inner)
    assert (found["stop_early"], found["skip_misclassified"]) == said
