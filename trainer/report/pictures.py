"""Pictures inside the page."""

import base64
import io

import numpy as np
import PIL.Image

_EXACT = 64  # pixels up to which a picture of an example is kept exactly
_LARGEST = 192  # pixels; 24 noisy pictures of it stay below 1 MB


def data_uri(picture: np.ndarray) -> str:
    """Return a picture, uint8 [height, width, 1, 3 or 4], for an <img>: small and transparent ones
    exactly (PNG), large ones as a JPEG thumbnail, a tenth of the bytes."""
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
