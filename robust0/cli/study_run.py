"""Runs a part of a study from its options: opens it, runs it in its folder, draws and shows it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust0.cli.audit import EffortName
from robust0.cli.data import SplitName
from robust0.views.output import OutputFormat

if TYPE_CHECKING:
    from robust0.commands.study import StudyOptions
    from robust0.study.run import StudyJob
    from robust0.study.subjects import StudyScope


def asked_for(
    models: list[str] | None, attacks: tuple[str, ...], images: int, split: SplitName,
    eps: int | None, unit: str | None, effort: EffortName, data: str | None,
    data_dir: Path | None, factory: str | None, seed: int, **more: Any,  # noqa: ANN401
) -> Callable[[], "StudyOptions"]:  # fmt: skip
    """The options, made when torch may be imported."""

    def options() -> "StudyOptions":
        from robust0.commands.study import StudyOptions

        return StudyOptions(
            models=tuple(models or ()), attacks=attacks, images=images, split=split.value,
            factory=factory, data=data, data_dir=data_dir, eps=eps,
            unit=unit, effort=effort.value, seed=seed, **more,
        )  # fmt: skip

    return options


def run_part(
    part: str, asked: Callable[[], "StudyOptions"], build: Callable[["StudyScope"], "StudyJob"],
    out: Path | None, device: str, form: OutputFormat,
) -> None:  # fmt: skip
    """Open what the part is about, build its job, and run it."""
    from robust0.views.output import loading, transfer_bars

    loading(f"study {part}")
    from robust0.commands.study import open_scope
    from robust0.device import resolve_device

    with transfer_bars() as show:
        scope = open_scope(asked(), resolve_device(device), show)
    finish(build(scope), out, form)


def finish(job: "StudyJob", out: Path | None, form: OutputFormat) -> None:
    """Run the job in its folder, draw it, and show its table."""
    from robust0.commands.study import study_folder
    from robust0.study.figures import draw
    from robust0.study.run import run_study
    from robust0.study.tables import rows_of, title_of
    from robust0.views.output import note
    from robust0.views.study import study_view
    from robust0.views.tables import table
    from robust0.writers.study_html import write_page

    with study_folder(out, job.part) as folder:
        with study_view() as view:
            said = {"command": ["robust0", *sys.argv[1:]]}
            try:
                document = run_study(job, folder, view.show, said)
            except KeyboardInterrupt:
                note(f"what is finished is kept: the same command with -o {folder} goes on")
                raise
        written = [folder / f"{job.part}.json", *draw(document, folder)]
        page = write_page(folder)
    table(title_of(job.part), rows_of(document), form)
    note(f"wrote {', '.join(str(path) for path in (*written, *([page] if page else [])))}")
