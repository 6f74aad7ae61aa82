"""Help that ends with examples, and with names that are known only when it is asked for."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

# Words of other tools, and what they mean here.
OTHER_WORDS = {
    "train": "harden", "fit": "harden", "finetune": "harden", "fine-tune": "harden",
    "attack": "audit", "eval": "audit", "evaluate": "audit", "test": "audit", "benchmark": "audit",
    "prove": "certify", "verify": "zoo verify", "download": "data pull", "pull": "zoo pull",
    "list": "zoo list", "models": "zoo list", "datasets": "data list", "recipes": "recipe list",
    "convert": "zoo convert", "check": "gate", "ci": "gate", "info": "doctor", "version": "-V",
}  # fmt: skip
_RUN, _OUTPUT, _FINE = "Files and hardware", "Output and exit code", "Fine print"
PANELS = {
    **dict.fromkeys(
        ("out", "resume", "device", "data_dir", "workers", "compile_", "factory"), _RUN
    ),
    **dict.fromkeys(("form", "output_format", "dry_run", "strict", "fail_under", "allow"), _OUTPUT),
    **dict.fromkeys(("recipe", "overrides", "seed", "seeds", "batch_size", "precision"), _FINE),
    **dict.fromkeys(("thorough", "mode", "steps", "train_images", "keep_epochs"), _FINE),
}


def examples(*lines: str) -> str:
    """The end of a help text: one example per line."""
    return "\n\n".join(("Examples:", *lines))


class TellingGroup(TyperGroup):
    """Commands after whose Ctrl-C something can be said: Typer itself would end in silence."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as pressed:
            raise typer.Abort from pressed


class GroupedCommand(TyperCommand):
    """A command whose options stand in groups."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
        """Write the help."""
        for parameter in self.params:
            panel = PANELS.get(parameter.name or "")
            if panel is not None and isinstance(parameter, TyperOption):
                parameter.rich_help_panel = panel
        super().format_help(ctx, formatter)


def naming(names: Callable[[], str]) -> type[TyperCommand]:
    """A command whose help also lists what is installed: users' own attacks and methods too."""

    class Naming(GroupedCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's own
            shown = self.epilog
            self.epilog = "\n\n".join(part for part in (names(), shown) if part)
            try:
                super().format_help(ctx, formatter)
            finally:
                self.epilog = shown

    return Naming


def attack_names() -> str:
    """Every attack that can be named, and who brings those that robust0 does not."""
    from robust0.attacks import ATTACKS
    from robust0.attacks.battery import battery, groups

    own = [name for name, (attack, _) in battery().items() if attack.kind in ATTACKS.own]
    other = [
        f"{name} ({attack.__module__.partition('.')[0]})"
        for name, (attack, _) in battery().items()
        if attack.kind not in ATTACKS.own
    ]
    lines = [f"Attacks: {', '.join(own)}. Groups: {', '.join(groups())}."]
    lines += [f"Installed attacks: {', '.join(other)}."] if other else []
    return "\n\n".join(lines)


def method_list() -> str:
    """Every training method, those of installed packages last."""
    from robust0.training.methods.named import method_names

    return f"Methods: {', '.join(method_names())}."
