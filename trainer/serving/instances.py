"""Types and checks for the instances of a prediction request.

    {"instances": [{"b64": "..."}, {"image": [[...]], "key": "7"}], "parameters": {}}

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/get-online-predictions
"""

import base64
import binascii
import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.serving import MAX_INSTANCES

BATCH = 64
"""Number of instances per call of the model, which limits its memory."""
KEY = "key"
DEFAULT, BYTES, EXAMPLES = "serving_default", "serving_bytes", "serving_examples"
"""Signatures; see trainer/exported/export.py."""
FILES = "files"
"""In place of a signature: image files, which have to be decoded first."""
_NAMED = 20
"""Number of bad instances that an answer describes; the others are only counted."""


class RequestError(Exception):
    """A request can't be answered; the message says why."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.body = {"error": message, **more}  # body of the response


class InstanceError(Exception):
    """An instance can't be used; the message says why."""


class BadInstancesError(RequestError):
    """Some instances of a request can't be used.

    Args:
        problems: what is wrong, by the index of the instance in the request.
        keys: the keys of all instances; None for an instance without a key.
    """

    def __init__(self, problems: dict[int, str], keys: Sequence[Any]) -> None:
        named = sorted(problems)[:_NAMED]
        more = len(problems) - len(named)
        lines = "; ".join(f"instances[{index}] {problems[index]}" for index in named)
        details = [
            {"index": index, "error": problems[index]}
            | ({} if keys[index] is None else {KEY: keys[index]})
            for index in named
        ]
        super().__init__(
            f"{len(problems)} of {len(keys)} instances can't be used: {lines}"
            + (f"; and {more} more" if more else ""),
            instances=details,
        )


@dataclasses.dataclass(frozen=True)
class SignatureInstances:
    """The instances of a request that a signature answers."""

    signature: str  # or FILES
    indices: list[int]  # indices of these instances in the request
    inputs: dict[str, np.ndarray]  # an array [n, ...] for each argument of the signature


@dataclasses.dataclass(frozen=True)
class Request:
    """A request whose instances match the model's signatures."""

    keys: list[Any]  # the keys of the instances, in order; None for an instance without a key
    parts: list[SignatureInstances]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def files(self) -> list[bytes]:
        """Return the image files, which have to be decoded first."""
        return [file for part in self.parts for file in part.inputs.get(FILES, ())]


def instances_of(body: Any) -> Any:
    """Return the instances in a request's body; raise RequestError for none or too many."""
    instances = body.get("instances") if isinstance(body, dict) else None
    if not isinstance(instances, (list, np.ndarray)) or not len(instances):
        raise RequestError('the request is not {"instances": [...]} with one or more instances')
    if len(instances) > MAX_INSTANCES:
        raise RequestError(
            f"the request has {len(instances):,} instances; send at most {MAX_INSTANCES:,}"
        )
    return instances


def group_instances(
    instances: Sequence[Any],
    value_of: Callable[[Any], tuple[str, Any]],
    inputs_of: Callable[[str, dict[int, Any], dict[int, str]], dict[str, np.ndarray]],
    *,
    has_keys: bool = True,
) -> Request:
    """Group instances by the signature that answers them, as arrays.

    Raise BadInstancesError if some instances can't be used.

    Args:
        value_of: returns an instance's signature and value, or raises InstanceError.
        inputs_of: converts a signature's values, by place, to arrays; adds problems, by place.
        has_keys: True if the field `KEY` of an instance is its key.
    """
    keys: list[Any] = [None] * len(instances)
    by_signature: dict[str, dict[int, Any]] = collections.defaultdict(dict)
    problems: dict[int, str] = {}
    for index, instance in enumerate(instances):
        try:
            if has_keys and isinstance(instance, dict):
                keys[index] = _key_of(instance)
            signature, value = value_of(instance)
            by_signature[signature][index] = value
        except InstanceError as error:
            problems[index] = str(error)
    parts = [
        SignatureInstances(signature, [*values], inputs_of(signature, values, problems))
        for signature, values in by_signature.items()
    ]
    if problems:
        raise BadInstancesError(problems, keys)
    return Request(keys, parts)


def _key_of(instance: dict[str, Any]) -> Any:
    """Return an instance's key, which its prediction repeats, or None if it has no key."""
    key = instance.get(KEY)
    if key is None or isinstance(key, (str, int)):
        return key
    if isinstance(key, float) and math.isfinite(key):
        return key
    raise InstanceError(f"has a {KEY} that is neither text nor a number: {format_value(key)}")


def decode_base64(value: Any) -> bytes:
    """Decode {"b64": "..."}; raise InstanceError if `value` is anything else."""
    text = value.get("b64") if isinstance(value, dict) else None
    if not isinstance(text, str) or len(value) != 1:
        raise InstanceError(f'is {format_value(value)}, not {{"b64": "..."}} with base64')
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InstanceError("is not base64 (RFC 4648, section 4, with padding)") from None
    if not content:
        raise InstanceError("is empty")
    return content


def parse_features(content: bytes) -> Mapping[str, Any]:
    """Return the features of a serialized tf.Example by name, or {} if it can't be parsed."""
    # Imported here, because some callers need only the constants of this module.
    import tensorflow as tf

    try:
        return tf.train.Example.FromString(content).features.feature
    except Exception:  # DecodeError, whose module depends on protobuf's version.
        return {}


def format_value(value: Any) -> str:
    """Return a short form of a value for messages, without traversing lists."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "an integer of more than 18 digits"
    return repr(value[:40] if isinstance(value, str) else value)
