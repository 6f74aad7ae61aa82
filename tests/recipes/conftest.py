import pytest


@pytest.fixture
def write(tmp_path):
    """Write a recipe file and return its path as text."""

    def _write(text: str, name: str = "mine.yaml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return _write
