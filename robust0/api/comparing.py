"""Comparisons for Python: reports, run directories or models of the zoo in, one table out."""

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust0 import wording
from robust0.api.frames import frame
from robust0.api.refusals import in_python
from robust0.api.result import AuditReport
from robust0.commands.compare import Compared, compare_sources
from robust0.commands.compare_sources import of_audit
from robust0.comparing.sides import CertificateSide, Side
from robust0.comparison import ComparisonResults, PairedDifference, signed
from robust0.errors import RunError
from robust0.gate.certified import of_proofs
from robust0.proofs import Certificate, CertificateReport
from robust0.writers.compare import PAGE, write_comparison
from robust0.writers.compare_plot import draw_curves_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ComparisonReport:
    """The result of :func:`robust0.compare`: A is the first, differences are minus A's."""

    def __init__(self, compared: Compared) -> None:
        self._compared = compared

    @property
    def results(self) -> ComparisonResults:
        """All of it, as compare.json holds it."""
        return self._compared.results

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A line per subject but the first: better, worse, or no difference."""
        return self.results.verdicts

    def pair(
        self, name: str | None = None, eps: float | None = None, other: str = "B"
    ) -> PairedDifference:
        """One subject against A: the difference with its interval, and who survives alone.

        Args:
            name: ``clean``, ``saa``, ``worst-case``, an attack or ``certified``; by default what
                the verdict is about.
            eps: the budget or radius; by default the largest that has this name.
            other: the letter of the subject.
        """
        with in_python():
            rows = [
                r for r in self.results.rows if name in (None, r.name) and eps in (None, r.budget)
            ]
            row = self.results.main if (name, eps) == (None, None) else next(iter(rows), None)
            found = None if row is None else {p.letter: p for p in row.pairs}.get(other)
            if found is None:
                known = dict.fromkeys(f"{r.name} at {r.budget}" for r in self.results.rows)
                raise RunError(
                    f"there is no number {name!r} at {eps} of {other!r}",
                    f"one of {', '.join(known)}",
                )
            return found

    def rows(self) -> list[dict[str, Any]]:
        """A row per number: each subject's accuracy, and each but A's difference to A."""
        letters = [side.letter for side in self.results.sides]
        made = []
        for row in self.results.rows:
            cells: dict[str, Any] = {"name": row.name, "eps": row.budget}
            cells |= {
                letter: share.share for letter, share in zip(letters, row.shares, strict=True)
            }
            for pair in row.pairs:
                key = f"{pair.letter}-{letters[0]}"
                cells |= {
                    key: pair.difference / 100,
                    f"{key} low": pair.low / 100,
                    f"{key} high": pair.high / 100,
                    f"{letters[0]} not {pair.letter}": len(pair.only_first),
                    f"{pair.letter} not {letters[0]}": len(pair.only_other),
                }
            made.append(cells)
        return made

    def table(self) -> Any:  # noqa: ANN401 - a DataFrame where pandas is installed
        """The rows as a pandas DataFrame, or as a list of dicts where pandas is not installed."""
        return frame(self.rows())

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Everybody's accuracy over the budget, with intervals, on these or on new axes."""
        return draw_curves_on(self.results, ax)

    def save(self, folder: str | Path) -> Path:
        """Write compare.html, compare.json and the curves as PNG and SVG; the page's path."""
        with in_python():
            write_comparison(Path(folder), self.results, self._compared.sides)
        return Path(folder) / PAGE

    def __repr__(self) -> str:
        results = self.results
        lines = [f"{results.images:,} common images"]
        lines += [f"{s.letter}: {wording.tidy(s.source)}; {s.identity}" for s in results.sides]
        titles = [row.title(results.unit) for row in results.rows]
        wide = max(len(title) for title in titles)
        for title, row in zip(titles, results.rows, strict=True):
            shares = "  ".join(f"{wording.percent(share):>7}" for share in row.shares)
            pairs = "  ".join(_difference(pair) for pair in row.pairs)
            lines.append(f"{title:{wide}}  {shares}  {pairs}")
        return "ComparisonReport: " + "\n  ".join((*lines, *results.notes, *self.verdicts))

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        results, escape = self.results, html.escape
        sides = "".join(
            f"<li><b>{s.letter}</b> {escape(wording.tidy(s.source))}; {escape(s.identity)}</li>"
            for s in results.sides
        )
        heads = "".join(f"<th>{s.letter}</th>" for s in results.sides)
        heads += "".join(
            f"<th>{s.letter} - {results.sides[0].letter}</th>" for s in results.sides[1:]
        )
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(row.title(results.unit))}</td>"
            + "".join(f"<td>{wording.percent(share)}</td>" for share in row.shares)
            + "".join(f"<td>{_difference(pair)}</td>" for pair in row.pairs)
            + "</tr>"
            for row in results.rows
        )
        words = "".join(f"<p>{escape(text)}</p>" for text in (*results.notes, *self.verdicts))
        return (
            f"<div><ul>{sides}</ul><table><thead><tr><th></th>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table>{words}</div>"
        )


def compare(*subjects: AuditReport | CertificateReport | str | Path) -> ComparisonReport:
    """Compare audits or certificates on the images they share, each against the first.

    What does not compare (other images, other units, no common budget) is refused; other searches
    (effort, seed, precision, revision of an attack) are compared, and the verdict says so.

    Args:
        subjects: two or more of: what :func:`robust0.audit` or :func:`robust0.certify` returned,
            a run directory, a baseline, or the id of a model of the zoo, for the audit or
            certificate of its card.
    """
    with in_python():
        sources = [_source(subject) for subject in subjects]
        return ComparisonReport(compare_sources(sources, lambda _: None))


def _source(subject: object) -> str | Side:
    if isinstance(subject, AuditReport):
        return of_audit(subject.results.subject.model, subject.run_data)
    if isinstance(subject, Certificate):
        results = subject.results
        stored = of_proofs(results.subject, results.settings, subject.proofs)
        return CertificateSide(results.subject.model, stored, results)
    if isinstance(subject, str | Path):
        return str(subject)
    if isinstance(subject, CertificateReport):
        raise RunError(
            "this certificate has no proofs with it: nothing says which images are certified",
            "give what robust0.certify returned, or the run directory",
        )
    raise RunError(
        f"a {type(subject).__name__} is nothing that compares",
        "give a report of robust0.audit or robust0.certify, a run directory, or a zoo id",
    )


def _difference(pair: PairedDifference) -> str:
    return f"{signed(pair.difference)} ({signed(pair.low)} to {signed(pair.high)})"
