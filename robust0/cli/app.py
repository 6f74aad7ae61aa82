"""The robust0 command: its groups, its errors, its exit codes."""

import io
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from robust0 import __version__
from robust0.cli import data, recipe, study, zoo
from robust0.cli.audit import audit
from robust0.cli.certify import certify
from robust0.cli.gate import gate
from robust0.cli.harden import harden
from robust0.cli.report import report
from robust0.cli.schema import schema
from robust0.errors import Robust0Error
from robust0.views import output

app = typer.Typer(
    name="robust0",
    help="Harden, audit and certify image classifiers against sparse (l0) attacks.",
    epilog="Exit codes: 0 ok, 1 gate failed, 2 your mistake, 3 evaluation failed, "
    "4 evaluation unreliable (--strict), 130/143 interrupted. ROBUST0_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(harden)
app.command()(audit)
app.command()(certify)
app.command()(report)
app.command()(gate)
app.command()(schema)
app.add_typer(data.app, name="data")
app.add_typer(recipe.app, name="recipe")
app.add_typer(zoo.app, name="zoo")
app.add_typer(study.app, name="study")


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"robust0 {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
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
    """The exit code of a command line; whatever happens, 0 and 1 are a command's own words."""
    try:
        code = app(arguments, prog_name="robust0", standalone_mode=False)
        sys.stdout.flush()  # a full disk is met here, not after the exit code is settled
    except (typer.Abort, KeyboardInterrupt):
        return _tell("interrupted", "", 130)
    except BrokenPipeError:
        return _left_alone()
    except _USAGE as mistake:
        return _usage(mistake)
    except BaseException as problem:  # noqa: BLE001 - the last resort
        # Typer turns a broken pipe into an exit.
        return _left_alone() if _broken_pipe(problem) else _refused(problem)
    return code if isinstance(code, int) else 0


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
        "this is a bug of robust0: please report it; ROBUST0_DEBUG=1 shows the traceback",
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
    return _tell(message, f"see {command} --help", 2)
