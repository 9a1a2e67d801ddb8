"""The page around the sections."""

import re

from markupsafe import Markup

from trainer.report.markup import join
from trainer.report.style import CSS

# Nothing may be fetched and no script may run, whatever a class or a file is called.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, subtitle: str | Markup, sections: list[Markup]) -> str:
    """A whole HTML document of `sections`, which its navigation lists by their titles."""
    links = join(
        Markup('<a href="#{}">{}</a>').format(anchor, Markup(heading))  # noqa: S704 - our titles
        for part in sections
        for anchor, heading in re.findall(r'^<section id="(\w+)"><h2>(.*?)</h2>', part)
    )
    return Markup(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>{title}</title>\n<style>{css}</style>\n</head>\n<body>\n<main>\n"
        '<header><h1>{title}</h1><div class="subtitle">{subtitle}</div>'
        '<nav aria-label="Sections">{links}</nav></header>\n{sections}</main>\n</body>\n</html>\n'
    ).format(
        policy=_POLICY,
        title=title,
        subtitle=subtitle,
        css=Markup(CSS),  # noqa: S704 - our own
        links=links,
        sections=join(sections),
    )
