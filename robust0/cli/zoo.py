"""``robust0 zoo``: released checkpoints, and old weights made into checkpoints."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robust0 import upgrades
from robust0.cli import completions
from robust0.cli.checking import check_zoo
from robust0.cli.helping import examples
from robust0.cli.options import DataDir, Device, Form, Zoo
from robust0.cli.zoo_certified import certified_again, certified_facts
from robust0.cli.zoo_convert import convert
from robust0.cli.zoo_list import list_models
from robust0.cli.zoo_push import push
from robust0.units import counted
from robust0.views import output
from robust0.views.output import OutputFormat
from robust0.views.tables import mapping, table

if TYPE_CHECKING:
    from robust0.auditing.job import AuditJob
    from robust0.gate.baseline import Baseline
    from robust0.records import Report
    from robust0.zoo.cards import Card
    from robust0.zoo.fetch import Found
    from robust0.zoo.scores import Score

app = typer.Typer(
    help="Released checkpoints: list, show, pull, verify, check, add, push; convert old weights.",
    no_args_is_help=True,
)
_COLUMNS = ("name", "budget", "images", "claimed", "found", "lost", "gained")  # of zoo verify


Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="From zoo list, or hf-hub:OWNER/REPO.",
        autocompletion=completions.zoo_ids,
    ),
]


app.command("list", epilog=examples("robust0 zoo list", "robust0 zoo list --output-format tsv"))(
    list_models
)


@app.command("show", epilog=examples("robust0 zoo show cifar10-w16-e14-fast-ls-l0"))
def show_command(name: Id, zoo: Zoo = None, form: Form = OutputFormat.AUTO) -> None:
    """Show a model's card, its accuracy over budgets and where the numbers come from."""
    from robust0.records import Report
    from robust0.views.zoo import show_card
    from robust0.wording import shown_budgets
    from robust0.zoo.documents import read_json
    from robust0.zoo.fetch import attachment, drive, find_card

    found = find_card(name, zoo)
    _say_stale(found)
    path = drive(attachment(found, "report"))
    report = read_json(path, Report, upgrades.report)
    for problem in found.card.problems(report):
        output.warn(f"card and report disagree: {problem}")
    results = report.results
    if form is OutputFormat.JSON:
        values = {
            "card": found.card.model_dump(mode="json", by_alias=True),
            "curve": [point.model_dump(mode="json") for point in results.curve],
            "zoo": found.root.name,
            "report": str(path),
        }
        mapping(name, values, form)
        return
    wanted = set(shown_budgets(results))
    curve = [point for point in results.curve if point.budget in wanted]
    facts = _facts(found.card, report) | {"zoo": found.root.name, "report": str(path)}
    show_card(found.card.title, facts, curve, results.settings.unit, form)


@app.command("pull", epilog=examples("robust0 zoo pull cifar10-w16-e14-fast-ls-l0"))
def pull_command(name: Id, zoo: Zoo = None) -> None:
    """Bring a model's weights here, resumed and verified; prints their path."""
    from robust0.zoo.fetch import drive, find_card, weights

    with output.transfer_bars() as show:
        found = find_card(name, zoo)
        path = drive(weights(found), show)
    _say_stale(found)
    sys.stdout.write(f"{path}\n")


@app.command("verify", epilog=examples("robust0 zoo verify cifar10-w16-e14-fast-ls-l0"))
def verify_command(
    name: Id,
    full: Annotated[
        bool, typer.Option("--full", help="Attack all of the card's images, not 100 of them.")
    ] = False,
    zoo: Zoo = None,
    device: Device = "cpu",
    data_dir: DataDir = None,
    form: Form = OutputFormat.AUTO,
) -> None:
    """Attack a model again as its card says and compare verdict by verdict; exit 1 if it fails."""
    from robust0.gate.baseline import Baseline
    from robust0.gate.claims import compare_claims, papers
    from robust0.records import Report
    from robust0.zoo.documents import read_json
    from robust0.zoo.fetch import attachment, drive, find_card, weights

    with output.transfer_bars() as show:
        found = find_card(name, zoo)
        path = drive(weights(found), show)
        report = read_json(drive(attachment(found, "report"), show), Report, upgrades.report)
        stored = read_json(drive(attachment(found, "verdicts"), show), Baseline, upgrades.baseline)
    _say_stale(found)
    problems = papers(found.card, report, stored)
    proved = None
    if not problems:
        proved = certified_again(found, path, full=full, device=device, data_dir=data_dir)
    problems = proved if isinstance(proved, list) else problems
    for problem in problems:
        output.warn(problem)
    if problems:
        output.note(f"the claim of {name} does not hold: its card, report and verdicts disagree")
        raise typer.Exit(1)
    result = compare_claims(
        stored, _attacked_again(found.card, stored, path, full, device, data_dir)
    )
    lines = (*(proved.lines if proved and not isinstance(proved, list) else ()), *result.lines)
    rows = [{key: getattr(line, key) for key in _COLUMNS} | {"holds": line.holds} for line in lines]
    table(f"{name}: images that withstand, claimed and found", rows, form)
    same = result.verdicts - result.differing
    output.note(f"{same:,} of {result.verdicts:,} verdicts are the same")
    holds = all(line.holds for line in lines)
    output.note(f"the claim of {name} {'holds' if holds else 'does not hold'}")
    raise typer.Exit(0 if holds else 1)


def _attacked_again(
    card: "Card", stored: "Baseline", path: Path, full: bool, device: str, data_dir: Path | None
) -> "Baseline":
    """The verdicts of a second audit; says what differs from the first beside them."""
    import tempfile

    output.loading("zoo verify")
    from robust0.auditing.rundata import read_run
    from robust0.commands.verify import open_verification
    from robust0.device import resolve_device
    from robust0.gate.baseline import of_run
    from robust0.gate.differing import loose_differences

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with output.transfer_bars() as show:
            job = open_verification(
                card, stored, path, folder, full=full, device=resolve_device(device),
                data_dir=data_dir, progress=show,
            )  # fmt: skip
        _attack(job)
        again = of_run(read_run(folder))
    for difference in loose_differences(stored, again):
        output.note(f"differs from the card's audit: {difference}")
    return again


@app.command(
    "add",
    epilog=examples("robust0 zoo add runs/my-run --audit runs/my-audit --id my-model --zoo my-zoo"),
)
def add_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of robust0 harden.")],
    audit: Annotated[
        Path, typer.Option("--audit", metavar="AUDIT_RUN", help="Its audit's run directory.")
    ],
    name: Annotated[
        str | None, typer.Option("--id", help="Id of the model; default: data, method and network.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="One line about the model.")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights.")] = "MIT",
    command: Annotated[
        str | None, typer.Option(help="Command that trained it; default: the one the run recorded.")
    ] = None,
    external: Annotated[
        str | None, typer.Option(metavar="URL", help="Where weights above 4 MB have been put.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="CERTIFY_RUN", help="Its certificate's run directory.")
    ] = None,
    zoo: Annotated[
        Path | None, typer.Option("--zoo", metavar="DIR", help="Default: ./model_zoo.")
    ] = None,
) -> None:
    """Publish a trained and audited model: card, weights, report and verdicts in a zoo's folder."""
    from robust0.commands.zoo_add import Publication, add
    from robust0.errors import ZooError

    folder = zoo or Path("model_zoo")
    if zoo is None and not folder.is_dir():
        raise ZooError("there is no ./model_zoo here", "name the zoo's folder: --zoo DIR")
    said = Publication(name, title, licence, external, command, certificate)
    card = add(run, audit, folder, said)
    output.note(f"wrote {card.id} to {folder}: card, report, verdicts"
                + ("" if external else " and weights"))  # fmt: skip
    sys.stdout.write(f"{folder / card.id}.yaml\n")


app.command("check", epilog=examples("robust0 zoo check model_zoo/*.yaml"))(check_zoo)
app.command(
    epilog=examples(
        "robust0 zoo push cifar10-w16-e14-fast-ls-l0 hf-hub:me/robust-resnet --dry-run",
        "robust0 zoo push runs/my-run hf-hub:me/my-model --audit runs/my-audit --private",
    )
)(push)
app.command(
    epilog=examples("robust0 zoo convert old.pth --arch preact_resnet18 -o new.safetensors")
)(convert)


def _attack(job: "AuditJob") -> None:
    from robust0.auditing.run import run_audit
    from robust0.distributed import World
    from robust0.events import AuditFinished
    from robust0.views.audit import audit_view

    with audit_view() as view:
        for event in run_audit(job, World(), resume=False):
            if not isinstance(event, AuditFinished):  # which would name a folder about to vanish
                view.show(event)
            elif event.interrupted is not None:
                raise typer.Exit(128 + event.interrupted)


def _facts(card: "Card", report: "Report") -> dict[str, object]:
    """A card as people read it."""
    from robust0.wording import identity

    allowed = card.eval_budget
    training = "-" if card.train_budget is None else card.train_budget.amount
    arguments = ", ".join(f"{key}={value}" for key, value in card.arch_args.items())
    facts: dict[str, object] = {
        "id": card.id,
        "network": f"{card.architecture} ({arguments})",
        "data": f"{card.dataset} ({card.variant or 'official'})",
        "method": card.method,
        "budget": f"{counted(allowed.amount, allowed.unit)}, trained with {training}",
        "trained": f"{card.epochs} epochs, seed {card.seed}, {card.date}",
        "command": card.training_command,
        "licence": card.licence,
        "weights": f"{card.source}, {card.size:,} bytes",
        "sha256": card.sha256,
        "measured by": identity(report.results),
        "on": f"{card.audit.dataset} {card.audit.split}, robust0 "
        f"{card.audit.versions.get('robust0', '-')}, torch {card.audit.versions.get('torch', '-')}",
        "clean": _words(card.audit.clean),
    }
    scores = {f"{row.name} at {row.budget}": f"≤ {_words(row)}" for row in card.audit.robust}
    return facts | scores | certified_facts(card)


def _words(score: "Score") -> str:
    return f"{score.percent} % ({score.low} - {score.high})"


def _say_stale(found: "Found") -> None:
    if found.stale:
        output.warn(f"the zoo as last seen: {found.stale}")
