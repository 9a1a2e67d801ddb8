"""Render self-contained HTML pages from the templates and the style sheet in this folder.

HTML is only in the *.html.j2 files, and style only in style.css. Every value is escaped in the
templates, because names of classes and files come from the user's data.
"""

import base64
import functools
import io
from typing import Any

import jinja2
import numpy as np
import PIL.Image

from trainer.data.tables.dates import name_day
from vertex import formats

_EXACT = 64  # pixels: images up to this size are kept exactly
_THUMBNAIL = 192  # pixels: 24 noisy thumbnails of this size stay below 1 MB

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
    name_day,
)


def render(template: str, **context: Any) -> str:
    """Render a template in this folder or in that of the tasks.

    Raise jinja2.UndefinedError for an undefined name.
    """
    return _create_environment().get_template(template).render(context)


@functools.cache
def _create_environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader("trainer.report", ""), jinja2.PackageLoader("trainer.tasks", "")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {function.__name__: function for function in (*_FILTERS, data_uri)}
    environment.globals["undefined"] = formats.UNDEFINED
    return environment


def data_uri(picture: np.ndarray) -> str:
    """Encode a picture, uint8 [height, width, 1, 3 or 4], as a PNG or, if large, a thumbnail."""
    pixels = picture[..., 0] if picture.shape[-1] == 1 else picture
    image = PIL.Image.fromarray(np.ascontiguousarray(pixels))
    content = io.BytesIO()
    if max(image.size) <= _EXACT or image.mode == "RGBA":
        image.save(content, "PNG", optimize=True)
        kind = "png"
    else:
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        image.save(content, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
