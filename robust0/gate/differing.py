"""How two audits differ beside the model: what forbids a comparison, what is said beside one."""

from collections.abc import Mapping, Sequence

from robust0.gate.baseline import AttackIdentity, Baseline
from robust0.wording import tidy

Pairs = list[tuple[str, object, object]]


def differences(before: Baseline, after: Baseline) -> list[str]:
    """What keeps two audits from being compared, baseline first."""
    old, new = before.settings, after.settings
    found = _unequal(
        [("unit", old.unit, new.unit), ("budgets", list(old.budgets), list(new.budgets))]
    )
    found += setting_differences(before, after)
    found += _unequal(
        [
            ("data fingerprint", before.subject.data_fingerprint, after.subject.data_fingerprint),
            ("ensembles", before.budgets[0].ensembles, after.budgets[0].ensembles),
        ]
    )
    names = [[attack.name for attack in side.attacks] for side in (before, after)]
    own = [f"attack {tidy(n)} only in the baseline" for n in names[0] if n not in names[1]]
    own += [f"attack {tidy(n)} only in the run" for n in names[1] if n not in names[0]]
    own += attack_differences(before.attacks, after.attacks)
    if not own and names[0] != names[1]:
        own.append(f"order of attacks {_short(names[0])} -> {_short(names[1])}")
    found += own
    if set(before.ids) != set(after.ids):
        gone, fresh = set(before.ids) - set(after.ids), set(after.ids) - set(before.ids)
        found.append(f"image ids: {len(gone)} only in the baseline, {len(fresh)} only in the run")
    elif _labels(before) != _labels(after):
        found.append("labels of the same images")
    return found


def setting_differences(before: Baseline, after: Baseline) -> list[str]:
    """How long and in which manner each searched."""
    old, new = before.settings, after.settings
    return _unequal(
        [
            ("effort", old.effort, new.effort),
            ("tolerance", old.tolerance, new.tolerance),
            ("most passes per image", old.max_passes, new.max_passes),
            ("mode", old.mode, new.mode),
            ("seed", old.seed, new.seed),
            ("thorough", before.thorough, after.thorough),
        ]
    )


def attack_differences(
    before: Sequence[AttackIdentity], after: Sequence[AttackIdentity], *, params: bool = True
) -> list[str]:
    """Kind, revision and settings of the attacks that both have."""
    old, new = ({attack.name: attack for attack in side} for side in (before, after))
    found = []
    for name in (name for name in old if name in new):
        facts = [("kind", old[name].kind, new[name].kind)]
        facts += [("revision", str(old[name].revision), str(new[name].revision))]
        facts += _param_pairs(old[name].params, new[name].params) if params else []
        found += [f"{tidy(name)} {key} {a} -> {b}" for key, a, b in facts if a != b]
    return found


def search_differences(before: Baseline, after: Baseline) -> list[str]:
    """How two searches round differently: some other images fall, and more than a few."""
    old, new = before.settings, after.settings
    found = []
    if old.search_dtype != new.search_dtype:
        found.append(f"{tidy(old.search_dtype)} -> {tidy(new.search_dtype)}")
    if old.compiled != new.compiled:
        found.append("compiled -> not compiled" if old.compiled else "not compiled -> compiled")
    return found


def loose_differences(before: Baseline, after: Baseline) -> list[str]:
    """What may move borderline images without forbidding the comparison."""
    old, new = before.settings, after.settings
    names = ("device", "torch", "batch_size")
    pairs: Pairs = [(name, getattr(old, name), getattr(new, name)) for name in names]
    return _unequal([*pairs, ("robust0", before.robust0, after.robust0)])


def _unequal(pairs: Pairs) -> list[str]:
    return [f"{name} {_short(a)} -> {_short(b)}" for name, a, b in pairs if a != b]


def _param_pairs(
    old: Mapping[str, object], new: Mapping[str, object]
) -> list[tuple[str, str, str]]:
    keys = dict.fromkeys((*old, *new))
    return [(tidy(k), _short(old.get(k, "unset")), _short(new.get(k, "unset"))) for k in keys]


def _labels(side: Baseline) -> dict[int, int]:
    return dict(zip(side.ids, side.labels, strict=True))


def _short(value: object) -> str:
    text = tidy(str(value), 1000)
    return text if len(text) <= 40 else f"{text[:36]}..."
