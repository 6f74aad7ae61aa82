"""What ``robust0 certify`` leaves behind: a proof per image, and the report folded from them.

No torch here: reports are read, compared and drawn without it. ``CertificateResults`` is
byte-identical for identical runs; whatever depends on the clock or the machine is in ``RunInfo``.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from robust0.records import Accuracy, Frozen, RunInfo, Share, Subject

Pixels = Annotated[int, Field(ge=0)]
Detail = int | float | str | bool | None


class Answer(Frozen):
    """What one classifier says about an image, and the changed pixels it is proved to survive."""

    label: int | None = Field(description="null: it abstains")
    radius: Pixels = Field(description="changed pixels that cannot move the answer")
    low: Share | None = Field(None, description="ablation: the answer is at least this likely")
    high: Share | None = Field(None, description="ablation: any other is at most this likely")

    def certified(self, label: int, pixels: int) -> bool:
        """Whether it answers right, and this is proved for so many changed pixels."""
        return self.label == label and self.radius >= pixels


class Proof(Frozen):
    """One image; a line of proofs.jsonl."""

    image: int
    label: int
    answers: dict[str, Answer] = Field(description="by classifier")


class Trial(Frozen):
    """An attack on one answer, within its own certified radius; a line of trials.jsonl."""

    classifier: str
    attack: str
    revision: int
    image: int
    answer: int = Field(description="what the classifier says of the unchanged image")
    radius: int = Field(description="pixels the attack may change: the certified radius")
    broke: bool = Field(description="the answer changed: the proof or its code is wrong")
    prediction: int
    forwards: int
    backwards: int


class CertifiedPoint(Frozen):
    """Certified accuracy at a number of changed pixels."""

    pixels: int
    certified: Accuracy = Field(description="right answers that are proved to stay")
    wrong: int = Field(description="wrong answers that are proved to stay; they do not count")


class CertifiedClass(Frozen):
    """One class: right answers, and how many of them are proved at each number of pixels asked."""

    label: int
    name: str
    images: int
    clean: int
    certified: dict[int, int]


class TrialRow(Frozen):
    """What one attack achieved against the certificates of one classifier."""

    attack: str
    revision: int
    effort: str
    tried: int
    broken: int
    images: tuple[int, ...] = Field(description="whose certificate broke")


class CertifiedClassifier(Frozen):
    """One classifier: a rule of its own over the same views, masks or samples."""

    name: str
    clean: Accuracy = Field(description="right answers on unchanged images")
    abstained: int
    points: tuple[CertifiedPoint, ...] = Field(description="at 1, 2, 3, ... pixels")
    median: int | None = Field(description="the most pixels at which half of all are certified")
    radii: dict[int, int] = Field(description="right answers by certified radius")
    classes: tuple[CertifiedClass, ...]
    trials: tuple[TrialRow, ...]

    def at(self, pixels: int) -> Accuracy:
        """Certified accuracy; beyond the largest radius nothing is proved."""
        if pixels == 0:
            return self.clean
        found = next((p.certified for p in self.points if p.pixels == pixels), None)
        if found is None:
            raise KeyError(pixels)
        return found


class BracketRow(Frozen):
    """certified <= true <= under attack, at one number of pixels, for one classifier."""

    pixels: int
    certified: Accuracy
    attacked: Accuracy


class Bracket(Frozen):
    """What the certificate proves and what an audit of the same classifier could break."""

    classifier: str
    attacks: tuple[str, ...]
    effort: str
    mode: str
    seed: int
    rows: tuple[BracketRow, ...]
    differing: int = Field(description="clean answers that audit and certificate see differently")
    broken: tuple[int, ...] = Field(description="images whose certificate the audit refutes")


class CertifySettings(Frozen):
    """How it was certified; two certificates compare only where these agree."""

    kind: Literal["partition-vote", "masks", "ablation"]
    headline: str = Field(description="the classifier that the checkpoint is")
    classifiers: tuple[str, ...] = Field(description="the headline first")
    pixels: tuple[int, ...] = Field(description="asked about, ascending")
    details: dict[str, Detail] = Field(description="views, masks or samples")
    expected_false: float | None = Field(description="false certificates, at most, on average")
    tried: int = Field(description="images per classifier whose certificates were attacked")
    effort: str = Field(description="of these attacks")
    seed: int
    device: str
    torch: str

    @field_validator("details", mode="before")
    @classmethod
    def _kinds(cls, details: Any) -> Any:  # noqa: ANN401 - not validated yet
        """Older certificates name the class of a partition: ``StridedPartition``."""
        name = details.get("partition") if isinstance(details, dict) else None
        if not isinstance(name, str) or not name.endswith("Partition"):
            return details
        return details | {"partition": name.removesuffix("Partition").lower()}


class CertificateResults(Frozen):
    """Numbers and what they mean; the same bytes for the same run."""

    subject: Subject
    settings: CertifySettings
    classifiers: tuple[CertifiedClassifier, ...] = Field(description="the headline first")
    bracket: Bracket | None

    @property
    def headline(self) -> CertifiedClassifier:
        """The classifier that the checkpoint is."""
        return self.classifiers[0]


class CertificateReport(Frozen):
    """report.json of a certificate."""

    schema_version: Literal[1] = Field(1, alias="schema")
    kind: Literal["robust0-certificate"] = "robust0-certificate"
    results: CertificateResults
    run: RunInfo

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class Certificate(CertificateReport):
    """What :func:`robust0.certify` returns: the report, and the proof of every image."""

    proofs: tuple[Proof, ...] = Field(exclude=True, repr=False, description="in order of images")

    def __repr__(self) -> str:
        results = self.results
        subject, headline = results.subject, results.headline
        shown = {"clean": headline.clean}
        shown |= {
            f"certified at {point.pixels:,}": point.certified
            for point in headline.points
            if point.pixels in results.settings.pixels
        }
        wide = max(map(len, shown))
        lines = [
            f"{subject.model} · {subject.dataset} {subject.split}, {subject.images:,} images",
            f"{results.settings.kind} certificate, {headline.name}; changed pixels",
        ]
        lines += [
            f"{name:{wide}}  {share.share:7.1%}  ({100 * share.low:.1f} - {100 * share.high:.1f})"
            for name, share in shown.items()
        ]
        return "Certificate: " + "\n  ".join(lines)

    __str__ = __repr__
