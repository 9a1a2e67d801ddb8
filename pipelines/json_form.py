"""Read JSON files that another process wrote and that may be damaged."""

import pathlib
from typing import TypeVar

from trainer.errors import InputError

T = TypeVar("T")


def read_json(path: pathlib.Path, form: type[T]) -> T | None:
    """Read a JSON file into a dataclass; return None if there is no file."""
    import pydantic

    try:
        return pydantic.TypeAdapter(form).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path} can't be read ({field and f'{field}: '}{first['msg']}): it is damaged, or no "
            "run wrote it; remove it"
        ) from None
