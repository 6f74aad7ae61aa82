"""A page from a template: one file that needs nothing else, every name in it escaped."""

from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from robust0 import wording


def page(template: str, **values: object) -> str:
    """The template of this name filled in; values are escaped unless they are our own markup."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        percent=wording.percent,
        interval=wording.interval,
        number=wording.number,
        seconds=wording.seconds,
        tidy=wording.tidy,
        notes=wording.notes,
        ensemble=wording.ensemble_name,
    )
    style = Markup(_text("page.css"))  # noqa: S704 - a file of our own
    return environment.from_string(_text(template)).render(style=style, **values)


def _text(name: str) -> str:
    place = files("robust0").joinpath("writers", "templates", name)
    return place.read_text(encoding="utf-8")
