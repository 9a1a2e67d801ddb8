"""Encode images for embedding into the page."""

import base64
import io

import numpy as np
import PIL.Image

_EXACT = 64  # pixels: images up to this size are kept exactly
_LARGEST = 192  # pixels: 24 noisy thumbnails of this size stay below 1 MB


def data_uri(picture: np.ndarray) -> str:
    """Encode a picture, uint8 [height, width, 1, 3 or 4], as a data URI for an <img>.

    Small and transparent pictures become PNG, large ones a JPEG thumbnail with a tenth of the
    bytes.
    """
    pixels = picture[..., 0] if picture.shape[-1] == 1 else picture
    image = PIL.Image.fromarray(np.ascontiguousarray(pixels))
    content = io.BytesIO()
    if max(image.size) <= _EXACT or image.mode == "RGBA":
        image.save(content, "PNG", optimize=True)
        kind = "png"
    else:
        image.thumbnail((_LARGEST, _LARGEST))
        image.save(content, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
