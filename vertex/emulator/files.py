"""Files on this machine, and the functions by which a service reads and writes others.

A caller that also has files elsewhere passes a module with its own functions of these names.
"""

import contextlib
import errno
import functools
import glob
import json
import pathlib
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, TypeVar, cast

from vertex import checked_json
from vertex.errors import InputError

T = TypeVar("T")


def list_matching(pattern: str) -> list[str]:
    """Return the files and folders that match a pattern or a plain path."""
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - a pattern, not a folder


def read(path: str | pathlib.Path) -> bytes:
    """Return the whole content of a file; raise OSError if it can't be read.

    Refuses what is not a regular file, such as a named pipe, whose end may never come.
    """
    file = pathlib.Path(path)
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return file.read_bytes()


def make_folder(path: str) -> None:
    """Make a folder and its parents, unless it exists."""
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)


def open_file(path: str, mode: str) -> BinaryIO:
    """Open a file in mode "rb" or "wb"."""
    return pathlib.Path(path).open(mode)  # type: ignore[return-value]


def stamp(path: pathlib.Path) -> tuple[int, ...]:
    """Return what differs between two contents of a file that is written atomically."""
    status = path.stat()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write a file that appears under its name only when it is complete."""
    # Two processes may write it at the same time.
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_checked(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum atomically."""
    text = json.dumps(checked_json.with_checksum(content), indent=1)
    write_atomically(path, f"{text}\n".encode())


def read_checked(path: pathlib.Path, form: type[T]) -> T:
    """Read a JSON file into a dataclass; raise InputError if it is damaged or can't be read.

    Raise FileNotFoundError if there is none.
    """
    with named(path):
        content = json.dumps(checked_json.parse(read(path)))
        return cast(T, _adapter(form).validate_json(content))


def check_types(value: T) -> T:
    """Return a dataclass made of a file's JSON; raise ValueError if a field has another type."""
    _adapter(type(value)).validate_python(_adapter(Any).dump_python(value, mode="json"))
    return value


def _make_adapter(form: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(form)


_adapter: Callable[[Any], Any] = functools.cache(_make_adapter)


@contextlib.contextmanager
def named(path: pathlib.Path) -> Iterator[None]:
    """Raise InputError, which names the file, if it can't be read or has another form."""
    import pydantic

    try:
        yield
    except (FileNotFoundError, InputError):
        raise
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror})") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field and f'{field}: '}{first['msg']}"
    except ValueError as error:
        reason = str(error)
    except (AttributeError, LookupError, TypeError) as error:
        reason = repr(error)
    else:
        return
    raise InputError(f"{path} can't be read ({reason}); restore it, or remove it")


def replace_text(content: Any, old: str, new: str) -> Any:
    """Return JSON with `old` replaced in all its texts, such as the path of a moved folder."""
    old, new = (json.dumps(text)[1:-1] for text in (old, new))
    return json.loads(json.dumps(content).replace(old, new))
