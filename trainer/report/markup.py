"""The page's building blocks.

Every function returns Markup and escapes what it is given, unless that is Markup
itself: names of classes and files come from the user's data, and must stay text.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

UNDEFINED = "–"  # noqa: RUF001 - a dash is what tables show for nothing


def join(parts: Iterable[Any]) -> Markup:
    """The parts one after another, escaped."""
    return Markup("").join(parts)


def name(text: str) -> Markup:
    """A name from the data, whose writing direction can't leak into what surrounds it."""
    return Markup("<bdi>{}</bdi>").format(text)


def section(anchor: str, title: str, *content: Markup, lead: str | Markup = "") -> Markup:
    """A part of the page, with a sentence that says how to read it."""
    intro = Markup('<p class="lead">{}</p>').format(lead) if lead else ""
    return Markup('<section id="{}"><h2>{}</h2>{}{}</section>\n').format(
        anchor, title, intro, join(content)
    )


def columns(*content: Markup) -> Markup:
    """Parts side by side, where there is room."""
    return Markup('<div class="columns">{}</div>').format(join(content))


def figure(
    drawing: Markup, caption: str, legend: Sequence[tuple[int, str | Markup]] = ()
) -> Markup:
    """A drawing with its caption, and a legend of (series number, text)."""
    keys = join(
        Markup('<li><i class="key s{}"></i>{}</li>').format(series, text) for series, text in legend
    )
    listed = Markup('<ul class="legend">{}</ul>').format(keys) if legend else ""
    return Markup("<figure><figcaption>{}</figcaption>{}{}</figure>").format(
        caption, listed, drawing
    )


def table(
    head: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: str, tall: bool = False
) -> Markup:
    """A table whose first column names the row; a cell is text, or Markup of a whole <td>.

    Args:
        caption: what it shows, for readers that can't see it.
        tall: it scrolls in a window of its own.
    """
    rows = [list(row) for row in rows]
    texts = [_is_text(cell) for cell in rows[0]] if rows else [False] * len(head)
    titles = join(
        Markup('<th scope="col"{}>{}</th>').format(Markup(' class="text"') if text else "", title)
        for title, text in zip(head, texts, strict=True)
    )
    lines = join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            first,
            join(cell if _is_cell(cell) else Markup("<td>{}</td>").format(cell) for cell in rest),
        )
        for first, *rest in rows
    )
    return Markup(
        '<div class="scroll{}" tabindex="0" role="region" aria-label="{}">'
        "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(" tall" if tall else "", caption, titles, lines)


def folded(title: str | Markup, *content: Markup) -> Markup:
    """What few readers want, behind a line that opens it."""
    return Markup("<details><summary>{}</summary>{}</details>").format(title, join(content))


def text_cell(text: Any) -> Markup:
    """A table cell of words, which start at its left and may wrap."""
    return Markup('<td class="text">{}</td>').format(text)


def _is_text(cell: Any) -> bool:
    return isinstance(cell, Markup) and cell.startswith('<td class="text"')


def _is_cell(cell: Any) -> bool:
    return isinstance(cell, Markup) and cell.startswith("<td")


def bar(text: str, share: float | None, series: int = 1) -> Markup:
    """A table cell with a bar behind its text, `share` of the cell long."""
    if share is None:
        return Markup('<td class="none">{}</td>').format(UNDEFINED)
    return Markup('<td class="bar s{}" style="--v:{}">{}</td>').format(
        series, f"{min(1.0, max(0.0, share)):.4f}", text
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Names and values, as a list; pairs without a value are left out."""
    return Markup('<dl class="facts">{}</dl>').format(
        join(
            Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(breakable(label), plain(value))
            for label, value in pairs
            if value not in (None, "", {}, [])
        )
    )


def breakable(label: str) -> Markup:
    """A name such as augmentation_operations, which may be broken after an underscore."""
    return Markup("_<wbr>").join(label.split("_"))


def plain(value: Any) -> Any:
    """How any JSON value reads in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int)) for item in value):
        return ", ".join(map(str, value))
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def percent(value: float | None, digits: int = 1) -> str:
    """0.9722 as 97.2%, where 100% and 0% mean exactly that."""
    if value is None:
        return UNDEFINED
    step = 10.0 ** -(digits + 2)
    shown = value
    if 0 < value < 1:
        shown = min(max(value, step), 1 - step)
    return f"{100 * shown:.{digits}f}%" if value not in (0, 1) else f"{100 * value:.0f}%"


def decimal(value: float | None, digits: int = 3) -> str:
    """0.99996 as 0.999, so that 1.000 means exactly that."""
    if value is None:
        return UNDEFINED
    return f"{min(value, 1 - 10.0**-digits) if 0.5 < value < 1 else value:.{digits}f}"


def count(value: float, noun: str, plural: str = "") -> str:
    """`1 example`, `1,797 examples`."""
    return f"{value:,.0f} {noun if value == 1 else plural or noun + 's'}"


def size(count: int) -> str:
    """Bytes in the unit that leaves few digits."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def number(value: Any) -> float | None:
    """A finite number from a table of text or numbers; None for anything else."""
    try:
        parsed = float(value)
    except (TypeError, ValueError):
        return None
    return parsed if math.isfinite(parsed) else None
