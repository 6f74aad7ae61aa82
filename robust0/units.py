"""Amounts of a unit in words: 1 pixel, 20 pixels, 3 4x4 patches."""


def plural(unit: str, amount: float = 2) -> str:
    """``pixel`` or ``pixels``, ``4x4 patch`` or ``4x4 patches``."""
    kind, _, size = unit.partition(":")
    ending = "" if amount == 1 else "es" if kind.endswith("ch") else "s"
    return f"{size}x{size} {kind}{ending}" if size else f"{kind}{ending}"


def counted(amount: float, unit: str) -> str:
    """``1 pixel``, ``20 pixels``."""
    return f"{amount:,} {plural(unit, amount)}"
