"""The robust0 command: its groups, its errors, its exit codes."""

import io
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from robust0 import __version__
from robust0.cli import data, recipe, study, zoo
from robust0.cli.audit import audit
from robust0.cli.certify import certify
from robust0.cli.compare import compare
from robust0.cli.doctor import doctor
from robust0.cli.gate import gate
from robust0.cli.harden import harden
from robust0.cli.helping import (
    OTHER_WORDS,
    GroupedCommand,
    TellingGroup,
    attack_names,
    examples,
    method_list,
    naming,
)
from robust0.cli.report import report
from robust0.cli.schema import schema
from robust0.errors import Robust0Error
from robust0.views import output

app = typer.Typer(
    name="robust0",
    cls=TellingGroup,
    help="Harden, audit and certify image classifiers against sparse (l0) attacks.",
    epilog="Exit codes: 0 ok, 1 gate failed, 2 your mistake, 3 evaluation failed, "
    "4 evaluation unreliable (--strict), 130/143 interrupted. ROBUST0_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    rich_help_panel="Models",
    cls=naming(method_list),
    epilog=examples(
        "robust0 harden --recipe quick",
        "robust0 harden --model convnext_tiny --data cifar10",
        "robust0 harden --from cifar10-w16-e14-fast-ls-l0 --data sample --epochs 1",
        "robust0 harden --factory my_package.nets:make --data npz:my.npz",
    ),
)(harden)
app.command(
    rich_help_panel="Models",
    cls=naming(attack_names),
    epilog=examples(
        "robust0 audit cifar10-w16-e14-fast-ls-l0 --data sample --images 32",
        "robust0 audit runs/my-run --eps 5,10,20 --effort standard",
        "robust0 audit weights.safetensors --factory my_package.nets:make --data folder:images",
        "robust0 audit runs/my-run --data cifar10 --eps 20 --fail-under saa=60",
    ),
)(audit)
app.command(
    rich_help_panel="Models",
    epilog=examples("robust0 certify runs/my-run --data sample --images 100"),
)(certify)
app.command(
    rich_help_panel="Results",
    epilog=examples("robust0 report runs/my-audit", "robust0 report runs/my-audit -v"),
)(report)
app.command(
    rich_help_panel="Results",
    epilog=examples(
        "robust0 compare runs/old runs/new",
        "robust0 compare runs/old runs/new -o comparison",
        "robust0 compare baseline.json runs/new --output-format json",
        "robust0 compare cifar10-w8-e4-fast-ls-l0 cifar10-w8-e4-sparse-at",
    ),
)(compare)
app.command(
    rich_help_panel="Results",
    epilog=examples(
        "robust0 gate runs/new --baseline baseline.json --max-drop 1 --policy significant",
        "robust0 gate runs/new --baseline runs/old",
        "robust0 gate runs/old --write-baseline baseline.json",
    ),
)(gate)
app.command(rich_help_panel="Help", epilog=examples("robust0 schema report"))(schema)
app.command(rich_help_panel="Help", epilog=examples("robust0 doctor --no-network"))(doctor)
app.add_typer(data.app, name="data", rich_help_panel="Models")
app.add_typer(recipe.app, name="recipe", rich_help_panel="Models")
app.add_typer(zoo.app, name="zoo", rich_help_panel="Models")
app.add_typer(study.app, name="study", rich_help_panel="Results")


for _part in study.app.registered_commands:  # each takes models, or for training its runs
    _name = _part.name or getattr(_part.callback, "__name__", "")
    _part.epilog = _part.epilog or examples(f"robust0 study {_name} runs/my-run")
for _group in (app, data.app, recipe.app, zoo.app, study.app):
    for _part in _group.registered_commands:
        if _part.cls is None or not issubclass(_part.cls, GroupedCommand):
            _part.cls = GroupedCommand


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"robust0 {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only results, warnings and errors.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every caveat in the terminal.")
    ] = False,
) -> None:
    """Harden, audit and certify image classifiers against sparse (l0) attacks."""


def main() -> None:
    """Run the command; refusals are two lines, never a traceback (unless ROBUST0_DEBUG=1)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets ? for ≤
        elif stream is None:  # closed by the shell
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - to the end
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command line; 0 and 1 come from the command itself, never from a crash."""
    arguments = _loudness(arguments)
    try:
        code = (
            0 if _helped(arguments) else app(arguments, prog_name="robust0", standalone_mode=False)
        )
        sys.stdout.flush()  # a full disk is met here, not after the exit code is settled
    except (typer.Abort, KeyboardInterrupt):
        return _tell("interrupted", "", 130)
    except BrokenPipeError:
        return _left_alone()
    except _USAGE as mistake:
        return _usage(mistake)
    except BaseException as problem:  # noqa: BLE001 - the last resort
        if isinstance(problem, SystemExit) and "_ROBUST0_COMPLETE" in os.environ:
            return int(problem.code or 0)  # the shell asked for words, and has them
        # Typer turns a broken pipe into an exit.
        return _left_alone() if _broken_pipe(problem) else _refused(problem)
    return code if isinstance(code, int) else 0


def _helped(arguments: list[str]) -> bool:
    """Write the help of ``COMMAND ... --help``; reading the options first would import pydantic."""
    *names, last = arguments or [""]
    if last not in {"-h", "--help"}:
        return False
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="robust0", **command.context_settings)
    for name in names:
        found = getattr(command, "commands", {}).get(name)
        if found is None:
            return False
        command = found
        settings = command.context_settings
        context = command.context_class(command, parent=context, info_name=name, **settings)
    sys.stdout.write(command.get_help(context))
    sys.stdout.flush()
    return True


def _loudness(arguments: list[str]) -> list[str]:
    """Take -q and -v out of a command line, wherever they stand."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words, rest = arguments[:end], arguments[end:]
    output.Verbosity.quiet = bool({"-q", "--quiet"} & set(words))
    output.Verbosity.verbose = bool({"-v", "--verbose"} & set(words))
    return [word for word in words if word not in {"-q", "--quiet", "-v", "--verbose"}] + rest


def _left_alone() -> int:
    """The reader (head, a pager) has gone; there is nobody to tell."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 141


def _broken_pipe(problem: BaseException) -> bool:
    return isinstance(problem, SystemExit) and isinstance(problem.__context__, BrokenPipeError)


def _tell(message: str, hint: str, code: int) -> int:
    """The lines of a refusal, if anybody can read them, and its exit code."""
    try:
        output.error(message, hint)
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return code


def _refused(problem: BaseException) -> int:
    """Two lines and an exit code for a refusal, and for what nobody foresaw."""
    if os.environ.get("ROBUST0_DEBUG") == "1":
        traceback.print_exception(problem)
    if isinstance(problem, Robust0Error):
        return _tell(problem.message, problem.hint, problem.exit_code)
    if isinstance(problem, OSError):  # a disk or a folder, more likely than robust0
        where = f" {problem.filename}:" if problem.filename else ""
        return _tell(
            f"the system refused:{where} {problem.strerror or problem}",
            "check the path, its permissions and free space; ROBUST0_DEBUG=1 shows the traceback",
            3,
        )
    return _tell(
        f"robust0 failed: {type(problem).__name__}: {problem}",
        "this is a bug in robust0: please report it; ROBUST0_DEBUG=1 shows the traceback",
        3,
    )


# Typer's usage errors share this base; it has no public name.
_USAGE: type[Exception] = next(
    base
    for base in typer.BadParameter.__mro__
    if base.__name__ == "ClickException" and issubclass(base, Exception)
)


def _usage(mistake: Exception) -> int:
    """A wrong command line, as one line of message and one of hint."""
    context = getattr(mistake, "ctx", None)
    command = context.command_path if context is not None else "robust0"
    message = getattr(mistake, "format_message", mistake.__str__)()
    if not message:  # no arguments at all: the help has been printed
        return 2
    wrong = re.search(r"No such command '([^']*)'", message)
    meant = OTHER_WORDS.get(wrong[1].lower()) if wrong else None
    if meant is not None and command == "robust0":
        hint = f"robust0 {meant} does that: see robust0 {meant.split()[0]} --help"
        return _tell(f"there is no command {wrong[1] if wrong else ''}", hint, 2)
    return _tell(message, f"see {command} --help", 2)
