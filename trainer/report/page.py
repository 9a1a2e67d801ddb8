"""Render self-contained HTML pages from the templates and the style sheet of this folder.

HTML is only in the *.html.j2 files, style in style.css. Every value is escaped when it enters a
template, because names of classes and files come from the user's data.
"""

import functools
from typing import Any

import jinja2

from trainer.report import formats, pictures

_FILTERS = (
    formats.count,
    formats.decimal,
    formats.duration,
    formats.figure,
    formats.money,
    formats.number,
    formats.percent,
    formats.plain,
    formats.size,
    pictures.data_uri,
)


def render(template: str, **context: Any) -> str:
    """Render a template of this folder; raise jinja2.UndefinedError for an undefined name."""
    return _environment().get_template(template).render(context)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainer.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {one.__name__: one for one in _FILTERS}
    environment.globals["undefined"] = formats.UNDEFINED
    return environment
