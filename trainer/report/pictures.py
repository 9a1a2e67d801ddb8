"""The section of mistakes, with a picture of each where examples have one."""

import base64
import io

import numpy as np
import PIL.Image
from markupsafe import Markup

from trainer.evaluation.mistakes import Mistake
from trainer.evaluation.scoring import Evaluation
from trainer.report.markup import (
    bar,
    breakable,
    count,
    folded,
    join,
    name,
    percent,
    section,
    table,
    text_cell,
)

PIXEL_ART = 64  # up to this size pictures are shown pixel by pixel
ROWS_SHOWN = 6  # of a table; the others are folded
LARGEST = 192  # pixels; 24 noisy pictures of it stay below 1 MB


def mistakes(evaluation: Evaluation) -> Markup:
    """The most confident mistakes: pictures where there are any, else a table."""
    title = "Mistakes"
    wrong = evaluation.examples - round(evaluation.accuracy * evaluation.examples)
    shown = evaluation.mistakes
    if not shown:
        lead = f"None: all of the {evaluation.split} split's examples are right."
        return section("mistakes", title, lead=lead)
    lead = (
        f"{len(shown)} of {count(wrong, 'mistake')}"
        if len(shown) < wrong
        else f"All {count(wrong, 'mistake')}"
    )
    lead += ", the most confident first: often a wrong label, bad data, or a case unlike all"
    lead += " that the model has seen."
    if any(mistake.row for mistake in shown):
        rest = shown[ROWS_SHOWN:]
        more = folded(f"{len(rest)} more", join(map(_row, rest))) if rest else Markup()
        return section("mistakes", title, join(map(_row, shown[:ROWS_SHOWN])), more, lead=lead)
    if all(mistake.picture is None for mistake in shown):
        return section("mistakes", title, _listed(shown), lead=lead)
    gallery = Markup('<div class="pictures">{}</div>').format(join(map(_shown, shown)))
    return section("mistakes", title, gallery, lead=lead)


def _shown(mistake: Mistake) -> Markup:
    assert mistake.picture is not None
    small = max(mistake.picture.shape[:2]) <= PIXEL_ART
    return Markup(
        '<figure><img class="{}" alt="{}: true class {}, predicted {}" src="{}">'
        '<figcaption><div class="line"><div><span>predicted</span> <b>{}</b></div>'
        "<span>{}</span></div>"
        '<div class="meter"><i style="--v:{}"></i></div>'
        '<div class="line"><div><span>true</span> <b>{}</b></div><span>{}</span></div>'
        "<code>{}</code></figcaption></figure>\n"
    ).format(
        "small" if small else "",
        mistake.key,
        mistake.label,
        mistake.predicted,
        data_uri(mistake.picture),
        name(mistake.predicted),
        percent(mistake.confidence),
        f"{mistake.confidence:.4f}",
        name(mistake.label),
        percent(mistake.label_probability),
        name(mistake.key),
    )


def _row(mistake: Mistake) -> Markup:
    """A row of a table as a card: the verdict, and its columns in their order."""
    values = Markup("").join(
        Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(
            breakable(column), name(value) if value else Markup('<span class="none">missing</span>')
        )
        for column, value in mistake.row.items()
    )
    return Markup(
        '<article class="row"><div class="verdict"><b>{}</b> <span>predicted, {}; true:</span> '
        '<b>{}</b><div class="meter"><i style="--v:{}"></i></div><code>{}</code></div>'
        "<dl>{}</dl></article>\n"
    ).format(
        name(mistake.predicted),
        percent(mistake.confidence),
        name(mistake.label),
        f"{mistake.confidence:.4f}",
        name(mistake.key),
        values,
    )


def _listed(shown: list[Mistake]) -> Markup:
    rows = [
        [
            name(mistake.key),
            text_cell(name(mistake.label)),
            text_cell(name(mistake.predicted)),
            bar(percent(mistake.confidence), mistake.confidence, 2),
        ]
        for mistake in shown
    ]
    head = ["Example", "True class", "Predicted", "Confidence"]
    return table(head, rows, caption="The most confident mistakes")


def data_uri(picture: np.ndarray) -> str:
    """A picture, uint8 [height, width, 1 or 3], for an <img>: small ones exactly (PNG), large
    ones as a JPEG thumbnail, a tenth of the bytes."""
    pixels = picture[..., 0] if picture.shape[-1] == 1 else picture
    image = PIL.Image.fromarray(np.ascontiguousarray(pixels))
    content = io.BytesIO()
    if max(image.size) <= PIXEL_ART:
        image.save(content, "PNG", optimize=True)
        kind = "png"
    else:
        image.thumbnail((LARGEST, LARGEST))
        image.save(content, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
