"""Draw a matrix of shares as a picture, one pixel for each cell."""

import numpy as np

_RIGHT, _WRONG = (40, 125, 200), (220, 105, 25)


def color_cells(shares: np.ndarray) -> np.ndarray:
    """Return RGBA pixels of shares [n, n], with a diagonal in another color.

    Empty cells are transparent, which fits light and dark mode.
    """
    pixels = np.zeros((*shares.shape, 4), np.uint8)
    pixels[..., :3] = _WRONG
    pixels[..., 3] = np.round(255 * np.sqrt(shares))
    diagonal = np.arange(len(shares))
    pixels[diagonal, diagonal, :3] = _RIGHT
    return pixels
