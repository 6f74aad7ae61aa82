"""Rows for people who may have pandas."""

from typing import Any


def frame(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - a DataFrame where pandas is installed
    """A pandas DataFrame, or the rows themselves where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return rows
    return pd.DataFrame(rows)
