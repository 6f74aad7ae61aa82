"""What the shell proposes for the word being typed; nothing here imports torch."""

from collections.abc import Iterable


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def zoo_ids(incomplete: str) -> list[str]:
    """Models of the zoo that the user has chosen."""
    from robust0.zoo.roots import open_root

    return _fitting(open_root(None).listing(refresh=False).cards, incomplete)


def attacks(incomplete: str) -> list[str]:
    """Attacks and groups; in a comma-separated list the last one is completed."""
    from robust0.attacks.battery import battery, groups

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _fitting((*groups(), *battery()), last)]


def datasets(incomplete: str) -> list[str]:
    """Data by name, and what a path begins with."""
    from robust0.data.catalogue import DATASETS

    return _fitting((*DATASETS, "folder:", "npz:"), incomplete)


def methods(incomplete: str) -> list[str]:
    """Training methods."""
    from robust0.training.methods.named import method_names

    return _fitting(method_names(), incomplete)


def networks(incomplete: str) -> list[str]:
    """Architectures that can be trained, our own first."""
    from robust0.architectures import architectures, own

    return _fitting(dict.fromkeys((*own(), *architectures())), incomplete)


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes."""
    from robust0.recipes.load import list_recipes

    return _fitting(list_recipes(), incomplete)
