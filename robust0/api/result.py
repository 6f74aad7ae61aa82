"""What an audit in Python returns: numbers, verdicts and adversarial images of every image."""

import html
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robust0 import wording
from robust0.api.frames import frame
from robust0.api.scratch import ScratchFolder
from robust0.auditing.given import GivenSet
from robust0.auditing.known import fallen, hits_within
from robust0.auditing.rundata import RunData
from robust0.errors import RecipeError, RunError
from robust0.records import CLEAN, Accuracy, Amount, Report, Results, RunInfo, Verdict
from robust0.views.figure import draw_curve
from robust0.writers.artefacts import write_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Key = tuple[Amount, str, int]  # eps, attack, image


class AuditReport:
    """The result of :func:`robust0.audit`; every accuracy is an upper bound."""

    def __init__(self, run: RunData, data: GivenSet, folder: ScratchFolder) -> None:
        self._run, self._data, self._folder = run, data, folder

    # -- numbers -----------------------------------------------------------------------------------

    @property
    def report(self) -> Report:
        """All of it, as report.json holds it."""
        return self._run.report

    @property
    def run_data(self) -> RunData:
        """The run behind it, as a comparison reads it."""
        return self._run

    @property
    def results(self) -> Results:
        """Numbers and what they mean."""
        return self.report.results

    @property
    def run(self) -> RunInfo:
        """Times, versions and the machine."""
        return self.report.run

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks, in the order in which they ran."""
        return tuple(row.name for row in self.results.budgets[0].attacks)

    @property
    def budgets(self) -> tuple[Amount, ...]:
        """Largest first."""
        return tuple(result.budget for result in self.results.budgets)

    def accuracy(self, name: str = wording.WORST_CASE, eps: Amount | None = None) -> Accuracy:
        """``clean``, ``saa``, ``worst-case`` or an attack's accuracy, with its 95 % interval."""
        if name == CLEAN:
            return self.results.clean
        result = self.results.budgets[self.budgets.index(self._budget(eps))]
        known = {row.name: row.robust for row in result.attacks}
        known |= {row.name: row.robust for row in result.ensembles}
        found = known.get(name)
        if found is None:
            raise RecipeError(
                f"this audit has no accuracy {name!r}", f"one of clean, {', '.join(known)}"
            )
        return found

    # -- images ------------------------------------------------------------------------------------

    @cached_property
    def images(self) -> Tensor:
        """(N, C, H, W): the images as they were attacked."""
        return self._data.images(torch.arange(len(self._data))).cpu()

    @property
    def labels(self) -> Tensor:
        """(N,): their classes."""
        return self._data.labels.cpu()

    @property
    def verdicts(self) -> Mapping[Key, Verdict]:
        """Everything known of an image under an attack, by (eps, attack, image)."""
        return self._run.verdicts

    def robust(self, name: str = wording.WORST_CASE, eps: Amount | None = None) -> Tensor:
        """(N,) bool: right on the clean image and under the named attack or group of attacks."""
        hits = hits_within(self.verdicts.values(), self._budget(eps))
        down = fallen(hits, self._members(name))
        return torch.tensor(
            [
                image not in down and not self.verdicts[0, CLEAN, image].fooled
                for image in range(len(self._data))
            ]
        )

    def predictions(self, attack: str = CLEAN, eps: Amount | None = None) -> Tensor:
        """(N,) int64: the class the model gives each image, attacked or (``clean``) not.

        An image that was not attacked, being wrong already or broken before, has its clean one.
        """
        budget = self._budget(eps)
        known = (
            self.verdicts.get((budget, attack, image)) or self.verdicts[0, CLEAN, image]
            for image in range(len(self._data))
        )
        return torch.tensor([verdict.prediction for verdict in known])

    def adversarial(
        self, attack: str = wording.WORST_CASE, eps: Amount | None = None, *, closest: bool = False
    ) -> Tensor:
        """(N, C, H, W): each image as the attack broke it; unchanged where it did not.

        Of several attacks, the hit that changes the least. With ``closest``, images that stand are
        shown with the attempt at this budget that left the smallest margin, if there was one.
        """
        budget, made = self._budget(eps), self.images.clone()
        for image in range(len(self._data)):
            keys = [(budget, name, image) for name in self._members(attack)]
            tried = [key for key in keys if key in self._run.attempts.found]
            hits = [key for key in tried if self.verdicts[key].fooled]
            best = min(hits, key=lambda key: self.verdicts[key].needed, default=None)
            if best is None and closest:
                best = min(tried, key=lambda key: self.verdicts[key].margin, default=None)
            if best is not None:
                painted = self._run.attempts.paint(best, self.images[image].numpy())
                made[image] = torch.from_numpy(painted)
        return made

    def _members(self, name: str) -> tuple[str, ...]:
        if name == CLEAN:
            return ()
        if name in self.attacks:
            return (name,)
        groups = {row.name: row.attacks for row in self.results.budgets[0].ensembles}
        if name not in groups:
            known = ", ".join((CLEAN, *groups, *self.attacks))
            raise RecipeError(f"this audit has no attack {name!r}", f"one of {known}")
        return groups[name]

    def _budget(self, eps: Amount | None) -> Amount:
        if eps is not None and eps not in self.budgets:
            known = ", ".join(str(budget) for budget in self.budgets)
            raise RecipeError(f"this audit has no eps {eps}", f"one of {known}")
        return self.budgets[0] if eps is None else eps

    # -- for people --------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """A row per attack and group of attacks at each budget, the clean images first."""
        spent = self.run.attack_seconds
        rows = [{"name": CLEAN, "eps": 0} | _share(self.results.clean)]
        for result in self.results.budgets:
            rows += [
                {"name": row.name, "eps": result.budget}
                | _share(row.robust)
                | {"broken": row.broken, "broken_by_it_alone": row.only,
                   "median_changed": row.median_distance, "median_passes": row.median_passes,
                   "seconds": spent.get(row.name)}
                for row in result.attacks
            ]  # fmt: skip
            for union in result.ensembles:
                lost = self.results.clean.count - union.robust.count
                share = _share(union.robust)
                rows.append({"name": union.name, "eps": result.budget} | share | {"broken": lost})
        keys = dict.fromkeys(key for row in rows for key in row)
        return [{key: row.get(key) for key in keys} for row in rows]

    def table(self) -> Any:  # noqa: ANN401 - a DataFrame where pandas is installed
        """The rows as a pandas DataFrame, or as a list of dicts where pandas is not installed."""
        return frame(self.rows())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Robust accuracy over the budget, with its interval, on these or on new axes."""
        return draw_curve(self.results, ax)

    def save(self, folder: str | Path) -> Path:
        """Write the run: report.html to look at, and all that a gate and a comparison need."""
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise RunError(f"{target} is not empty", "choose a new folder")
        shutil.copytree(
            self._folder.path, target, dirs_exist_ok=True,
            ignore=shutil.ignore_patterns(".lock", "parts"),
        )  # fmt: skip
        write_all(target)
        return target / "report.html"

    def __repr__(self) -> str:
        lines = [wording.subject(self.results), wording.identity(self.results)]
        rows = [(name, share) for name, share in self._headline() if share is not None]
        wide = max(len(name) for name, _ in rows)
        lines += [
            f"{name:{wide}}  {'  ' if name == CLEAN else '≤ '}{wording.percent(share):>7}  "
            f"({wording.interval(share)})"
            for name, share in rows
        ]
        lines += [f"! {flag.name}: {flag.message}" for flag in self.results.flags]
        return "AuditReport: " + "\n  ".join(lines)

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(name)}</td>"
            f"<td>{'' if name == CLEAN else '≤ '}{wording.percent(share)}</td>"
            f"<td>{wording.interval(share)}</td></tr>"
            for name, share in self._headline()
            if share is not None
        )
        flags = "".join(
            f"<p>⚠ <b>{html.escape(flag.name)}</b>: {html.escape(flag.message)}</p>"
            for flag in self.results.flags
        )
        return (
            f"<div><b>{html.escape(wording.subject(self.results))}</b><br>"
            f"{html.escape(wording.identity(self.results))}<table><thead><tr><th></th>"
            f"<th>accuracy</th><th>95 %</th></tr></thead><tbody>{rows}</tbody></table>{flags}</div>"
        )

    def _headline(self) -> list[tuple[str, Accuracy | None]]:
        found: list[tuple[str, Accuracy | None]] = [(CLEAN, self.results.clean)]
        for result in self.results.budgets:
            at = f" at {result.budget}" if len(self.budgets) > 1 else ""
            found += [(f"{row.name}{at}", row.robust) for row in result.attacks]
            found += [(f"{name}{at}", share) for name, share in wording.headline(result)]
        return found


def _share(accuracy: Accuracy | None) -> dict[str, Any]:
    if accuracy is None:
        return {}
    return {
        "accuracy": accuracy.share, "low": accuracy.low, "high": accuracy.high,
        "images": accuracy.images,
    }  # fmt: skip
