"""Calls that must be refused, and content to be refused."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from vertex.errors import InputError


def refused(call: Callable, *arguments: Any, **options: Any) -> str:
    """Return the message, one line, of the error that a call raises."""
    with pytest.raises(InputError) as raised:
        call(*arguments, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def mutated(generator: random.Random, whole: bytes) -> bytes:
    """Return content with some of its bytes changed, removed or repeated, often in its head."""
    content = bytearray(whole)
    for _ in range(generator.randrange(1, 6)):
        at = generator.randrange(min(len(content), generator.choice([64, 10**6])))
        kind, end = generator.randrange(3), at + generator.randrange(1, 200)
        if kind == 0:
            content[at] = generator.randrange(256)
        elif kind == 1:
            del content[at:end]
        else:
            content[at:at] = content[at:end]
        content = content or bytearray(b"{")
    return bytes(content)
