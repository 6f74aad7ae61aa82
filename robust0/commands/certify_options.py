"""The options of ``robust0 certify``, and what is refused before torch is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robust0.auditing.facts import read_run_file as read_audit_run
from robust0.certifying.facts import read_certify_run
from robust0.commands.audit_recipe import budgets_of, require_said
from robust0.commands.early import check_data_name, check_model_name, refuse_used
from robust0.device import parse_device
from robust0.errors import RecipeError, RunError
from robust0.gate.metrics import Floor

DEFAULT_PIXELS = "1,2,5,10,20"


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """What the command line said; None means "as model or default have it"."""

    model: str | None = None
    factory: str | None = None
    data: str | None = None
    data_dir: Path | None = None
    eps: str | None = None
    images: int | None = None
    samples: int | None = None
    choose: int | None = None
    alpha: float | None = None
    condition: Literal["half", "gap"] | None = None
    tried: int | None = None
    every_rule: bool = False
    attack: bool = False
    audit: Path | None = None
    effort: str | None = None
    seed: int | None = None
    batch_size: int | None = None
    out: Path | None = None
    resume: Path | None = None
    floors: tuple[Floor, ...] = ()

    @property
    def says_data(self) -> bool:
        """Whether the user said which images; a condition must not rest on a checkpoint's word."""
        return self.data is not None or self.audit is not None

    def resumed(self, folder: Path) -> "CertifyOptions":
        """All that may be said beside ``--resume``; a folder must not run code by itself."""
        return CertifyOptions(
            resume=folder, data_dir=self.data_dir, floors=self.floors, factory=self.factory
        )


def check_certify(options: CertifyOptions, device: str) -> None:
    """Refuse what ``robust0 certify`` cannot run, as far as words tell."""
    parse_device(device)
    if options.resume is not None:
        read_certify_run(options.resume)
        refuse_other_settings(options)
        return
    if options.floors:
        require_said(budget=True, data=options.says_data, whose="this certificate")
    check_model_name(options.model, options.factory)
    check_data_name(options.data, options.data_dir)
    if options.eps is not None:
        budgets_of(options.eps, "pixel", None)
    if options.alpha is not None and not 0 < options.alpha < 1:
        raise RecipeError(f"--alpha must lie between 0 and 1, got {options.alpha}", "try 0.05")
    if options.audit is not None:
        if options.attack:
            raise RecipeError(
                "--audit and --attack are two ways to one bracket", "give one of them"
            )
        read_audit_run(options.audit)
    if options.out is not None:
        refuse_used(options.out, "certify")


def refuse_other_settings(options: CertifyOptions) -> None:
    """Refuse settings beside ``--resume``."""
    if options.resume is not None and options != options.resumed(options.resume):
        raise RunError(
            "--resume goes on with the settings of the run; they cannot be changed",
            "leave out all but --device, --data-dir, --factory, --fail-under and --output-format",
        )


def pixels_of(eps: str | None, image_shape: tuple[int, int, int]) -> tuple[int, ...]:
    """The numbers of pixels to report about: as asked, or those by default that images have."""
    asked = budgets_of(eps or DEFAULT_PIXELS, "pixel", None)
    pixels = () if asked is None else asked[0]
    if eps is None:
        pixels = tuple(count for count in pixels if count <= image_shape[1] * image_shape[2])
    return pixels
