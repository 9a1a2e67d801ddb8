"""Read JSON files that another process has left, and that may be damaged."""

import pathlib
from typing import TypeVar

from trainer.errors import InputError

T = TypeVar("T")


def read_json(path: pathlib.Path, form: type[T]) -> T | None:
    """Read a JSON file with the fields of a dataclass; None where there is none."""
    import pydantic

    try:
        return pydantic.TypeAdapter(form).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path} can't be read ({place and f'{place}: '}{first['msg']}), so it is not what a "
            "run has written; take it away"
        ) from None
