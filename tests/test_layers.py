"""The architecture as a failing check: who may import whom, and what stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "robust0"

# One line per package or module: this dictionary is the diagram. Nothing points up.
BASE = {"errors", "lazy", "registry", "units", "upgrades"}
FACTS = {
    "certify_events",
    "comparison",
    "decision",
    "events",
    "proofs",
    "records",
    "study_events",
    "wording",
}  # no torch, no rich
ENGINE = BASE | {
    *("attacks", "data", "distributed", "events", "files", "interrupt", "losses", "models"),
    *("rng", "runs", "threats"),
}
ALLOWED = {
    "errors": set(),
    "files": set(),
    "architectures": {"errors"},
    "lazy": set(),
    "interrupt": set(),
    "rng": {"lazy"},
    "losses": {"lazy"},
    "records": set(),
    "comparison": {"records", "units", "wording"},
    "decision": {"records"},
    "wording": {"proofs", "records", "units"},
    "events": {"records"},
    "certify_events": {"proofs", "records"},
    "study_events": set(),
    "proofs": {"records"},
    "device": BASE,
    "distributed": BASE,
    "registry": {"errors"},
    "resources": BASE | {"files"},
    "threats": BASE,
    "units": set(),
    "upgrades": set(),
    "download": BASE | {"events", "files"},
    "models": BASE | {"certificates", "files", "rng", "threats", "upgrades"},
    "data": BASE | {"download", "events", "files", "resources", "rng"},
    "attacks": BASE | {"losses", "models", "rng", "threats"},
    "recipes": BASE
    | {"attacks", "data", "files", "resources", "training"},  # what components declare
    "zoo": BASE | FACTS | {"architectures", "download", "files", "models", "resources"},
    "runs": BASE | FACTS | {"data", "files", "models", "recipes", "zoo"},
    "training": ENGINE | {"certificates"},
    "auditing": ENGINE | FACTS,
    "study": ENGINE | FACTS | {"training"},
    "certifying": ENGINE | FACTS | {"auditing", "certificates"},
    "gate": BASE
    | FACTS
    | {"attacks", "auditing", "certifying", "files", "models", "threats", "zoo"},
    "comparing": BASE | FACTS | {"auditing", "certifying", "gate"},
    "writers": BASE | FACTS | {"auditing", "certifying", "comparing", "files", "runs", "study"},
    "commands": ENGINE
    | FACTS
    | {
        "architectures",
        "auditing",
        "certifying",
        "comparing",
        "device",
        "download",
        "gate",
        "recipes",
        "resources",
    }
    | {"study", "training", "writers", "zoo"},
    "certificates": BASE | {"rng"},
    "testing": BASE | {"attacks", "models", "rng", "threats"},
    "views": FACTS | {"units"},
    "cli": BASE
    | FACTS
    | {"architectures", "attacks", "auditing", "certifying", "commands", "data", "device"}
    | {"distributed"}
    | {"gate", "models", "recipes", "runs", "study", "training", "views", "writers", "zoo"},
    "studies": BASE | FACTS | {"auditing", "commands", "runs", "study"},
    "api": BASE
    | FACTS
    | {"auditing", "certifying", "commands", "comparing", "device", "distributed", "files"}
    | {"gate", "models", "recipes", "runs", "training", "views", "writers", "zoo"},
}
# The package's own names: __version__ and the public functions.
ROOT = {"__init__", "__main__"}
PYDANTIC = {"auditing", "certifying", "commands", "gate", "models", "proofs", "recipes", "records"}
PYDANTIC |= {"registry", "zoo"}


def imported(path: Path) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names += [f"robust0.{a.name}" for a in node.names] if module == "robust0" else [module]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    found = {name.split(".")[1] for name in names if name.startswith("robust0.")}
    return found - {"__version__"}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def area(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    here = area(path)
    if here in ROOT:
        return
    assert here in ALLOWED, f"{here} has no line in the diagram"
    assert imported(path) <= ALLOWED[here] | {here}


def test_the_diagram_has_no_line_for_what_does_not_exist():
    assert set(ALLOWED) == {area(path) for path in files()} - ROOT


@pytest.mark.parametrize(
    ("library", "owners"),
    [("rich", {"views"}), ("typer", {"cli"}), ("pydantic", PYDANTIC)],
)
def test_libraries_have_their_place(library, owners):
    for path in files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            if any(name.split(".")[0] == library for name in names):
                assert area(path) in owners, path


def commands() -> list[list[str]]:
    groups = {
        "data": ["list", "pull", "info"],
        "recipe": ["list", "show", "check"],
        "zoo": ["list", "show", "pull", "verify", "check", "add", "push", "convert"],
        "study": ["spectrum", "landscape", "overlap", "interpolate", "gradients", "training"],
    }
    return [
        [],
        *([name] for name in ("harden", "audit", "certify", "gate", "report", "doctor", "schema")),
        ["compare"],
        *([g] for g in groups),
        *([g, c] for g, cs in groups.items() for c in cs),
    ]


def test_help_and_lists_answer_without_importing_torch():
    script = (
        "import sys\n"
        "import robust0\n"
        "from robust0.cli.app import run\n"
        f"for arguments in {[[*c, '--help'] for c in commands()]!r} + [['data', 'list'],"
        " ['recipe', 'list'], ['recipe', 'show', 'cifar10'], ['--version']]:\n"
        "    assert run(arguments) == 0, arguments\n"
        "heavy = {'torch', 'torchvision', 'timm', 'numpy', 'scipy', 'matplotlib'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "harden" in done.stdout


def test_help_imports_little():
    """None of what takes longest to import."""
    script = (
        "import sys\n"
        "from robust0.cli.app import run\n"
        f"for arguments in {[[*c, '--help'] for c in commands()]!r}:\n"
        "    assert run(arguments) == 0, arguments\n"
        "dear = {'pydantic', 'yaml', 'huggingface_hub', 'rich.progress', 'robust0.events'}\n"
        "dear |= {'torch', 'timm', 'numpy', 'matplotlib', 'robust0.data.datasets'}\n"
        "assert not dear & set(sys.modules), dear & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_modules_stay_small():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files()}
    assert {path: size for path, size in lengths.items() if size > 300} == {}


def test_no_class_name_exists_twice():
    homes: dict[str, list[str]] = {}
    for path in files():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def modules_imported(path: Path, known: set[str]) -> set[str]:
    """Modules of the package that a module needs at run time, whenever that is."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for body in node.body
        for inner in ast.walk(body)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in typing_only:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else str(node.module) for name in names}
    return found & known


def test_modules_import_each_other_in_one_direction():
    """Imports inside functions count: a cycle that waits is a cycle."""
    names = {}
    for path in files():
        parts = ("robust0", *path.relative_to(PACKAGE).with_suffix("").parts)
        names[path] = ".".join(part for part in parts if part != "__init__")
    known = set(names.values()) - {"robust0"}
    waiting = {name: modules_imported(path, known) - {name} for path, name in names.items()}
    waiting.pop("robust0")
    while free := {name for name, needed in waiting.items() if not needed & set(waiting)}:
        waiting = {name: needed for name, needed in waiting.items() if name not in free}
    assert waiting == {}


def test_modules_have_a_small_median():
    lengths = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in files())
    assert lengths[len(lengths) // 2] <= 120


def test_a_function_name_recurs_only_where_it_is_called_through_its_module():
    """Commands of the command line are named after the functions behind them, and are let be."""
    homes: dict[str, set[str]] = {}
    imported_by_name: dict[str, set[str]] = {}
    for path in files():
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if area(path) != "cli":
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    imported_by_name.setdefault(alias.name, set()).add(node.module)
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert {n: sorted(w) for n, w in twice.items() if w & imported_by_name.get(n, set())} == {}


def test_every_package_is_on_the_map_of_contributing():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in text} == set()
