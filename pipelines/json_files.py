"""Read JSON files that another process wrote and that may be damaged; unify JSON's numbers."""

import copy
import json
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

from trainer import checked_json
from trainer.errors import InputError

T = TypeVar("T")


def read_json(path: pathlib.Path, form: type[T]) -> T | None:
    """Read a JSON file into a dataclass; return None if there is no file.

    Raise InputError if the file is damaged: it has a checksum, unless an earlier version of this
    project wrote it.
    """
    import pydantic

    try:
        content = json.dumps(checked_json.parse(path.read_bytes()))
        return pydantic.TypeAdapter(form).validate_json(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field and f'{field}: '}{first['msg']}"
    except ValueError as error:
        reason = str(error)
    raise InputError(
        f"{path} can't be read ({reason}): it is damaged, or no run wrote it; remove it"
    )


def to_whole_numbers(value: Any) -> Any:
    """Return a copy of JSON-like `value` with every integral float as an int.

    KFP passes all numbers in lists and structs as doubles, but a proto's integer field refuses
    2.0. JSON does not distinguish the two.
    """
    if isinstance(value, Mapping):
        return {key: to_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return copy.copy(value)
