"""Calls that must be refused."""

from collections.abc import Callable
from typing import Any

import pytest

from trainer.errors import InputError


def refused(call: Callable, *arguments: Any, **options: Any) -> str:
    """Return the message, one line, of the InputError that a call raises."""
    with pytest.raises(InputError) as raised:
        call(*arguments, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message
