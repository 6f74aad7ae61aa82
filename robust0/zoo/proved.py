"""The certificate of a card: certified accuracies, and the file of radii they follow from."""

from typing import Annotated, Literal

from pydantic import Field

from robust0.proofs import CertificateResults
from robust0.records import Frozen
from robust0.zoo.scores import Hash, JsonName, Name, RobustScore, Score, Whole, percents


class ProofSummary(Frozen):
    """What was proved about a card's classifier; every number follows from the radii."""

    kind: Literal["partition-vote", "masks", "ablation"]
    headline: Name
    dataset: Name
    split: Name
    images: Annotated[int, Field(ge=1)]
    clean: Score
    certified: Annotated[tuple[RobustScore, ...], Field(min_length=1, max_length=1000)]
    median: Whole | None = Field(description="pixels at which half of all images are certified")
    expected_false: Annotated[float, Field(ge=0)] | None
    tried: Whole = Field(description="certificates per classifier that were attacked; none broke")
    effort: Name
    radii: JsonName
    radii_sha256: Hash

    def at(self, pixels: int) -> RobustScore | None:
        """The headline's certified accuracy."""
        rows = [row for row in self.certified if row.name == self.headline]
        return next((row for row in rows if row.budget == pixels), None)

    @property
    def headline_scores(self) -> tuple[RobustScore, ...]:
        """The headline's accuracies, by pixels."""
        return tuple(row for row in self.certified if row.name == self.headline)


def proved(results: CertificateResults, radii: str, digest: str) -> ProofSummary:
    """What a certificate says, in the words of a card."""
    settings = results.settings
    return ProofSummary(
        kind=settings.kind,
        headline=settings.headline,
        dataset=results.subject.dataset,
        split=results.subject.split,
        images=results.subject.images,
        clean=Score(**percents(results.headline.clean)),
        certified=tuple(
            RobustScore(name=row.name, budget=pixels, **percents(row.at(pixels)))
            for row in results.classifiers
            for pixels in settings.pixels
        ),
        median=results.headline.median,
        expected_false=settings.expected_false,
        tried=settings.tried,
        effort=settings.effort,
        radii=radii,
        radii_sha256=digest,
    )
