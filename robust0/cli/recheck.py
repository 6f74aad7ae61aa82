"""``robust0 audit --recheck``: the stored hits of a run, once more on its model."""

from pathlib import Path
from typing import TYPE_CHECKING

from robust0.views.output import ReportFormat

if TYPE_CHECKING:
    from robust0.commands.audit_recipe import AuditOptions


def recheck_run(folder: Path, options: "AuditOptions", device: str, form: ReportFormat) -> None:
    """Try the stored hits of a run on its model; nothing else is done."""
    from robust0.commands.audit_recipe import AuditOptions
    from robust0.errors import RecipeError
    from robust0.views.output import OutputFormat, loading, transfer_bars
    from robust0.views.tables import table

    if options != AuditOptions(factory=options.factory, data_dir=options.data_dir):
        raise RecipeError(
            "--recheck tries the hits of a finished run; it takes no settings",
            "leave out all but --factory, --device, --data-dir and --output-format",
        )
    loading("audit")
    from robust0.commands.recheck import recheck, require_held
    from robust0.device import resolve_device

    with transfer_bars() as show:
        found = recheck(folder, options.factory, resolve_device(device), options.data_dir, show)
    shown = OutputFormat(form.value) if form.value in set(OutputFormat) else OutputFormat.PLAIN
    table(f"hits of {folder}", [row.row() for row in found], shown)
    require_held(found, folder)
