"""A page from a template: one file that needs nothing else, every name in it escaped.

The page runs one script and has one style sheet. Its content policy names both by their hash, so a
browser runs and loads nothing else: no handler, no ``style`` attribute, no address.
"""

import base64
import re
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from robust0 import wording

_SCRIPTS = ("tables.js", "figures.js", "gallery.js")
_HEADING = re.compile(r'<h2 id="([a-z0-9.-]+)">(.*?)</h2>')


def page(template: str, *, title: str, **values: object) -> str:
    """The template of this name inside a whole page; values are escaped unless our own markup."""
    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
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
    body = environment.get_template(template).render(**values)
    style = _text("page.css")
    script = "".join(_text(name) for name in _SCRIPTS)
    return environment.get_template("base.html.j2").render(
        title=title,
        policy=Markup(content_policy(style, script)),  # noqa: S704 - hashes and words of our own
        style=Markup(style),  # noqa: S704 - a file of our own
        script=Markup(script),  # noqa: S704 - files of our own
        contents=[(name, Markup(words)) for name, words in _HEADING.findall(body)],  # noqa: S704
        body=Markup(body),  # noqa: S704 - escaped as it was made
    )


def content_policy(style: str, script: str) -> str:
    """What a browser may do with a page: this style, this script, pictures inside the file."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode("ascii")


def _text(name: str) -> str:
    place = files("robust0").joinpath("writers", "templates", name)
    return place.read_text(encoding="utf-8")
