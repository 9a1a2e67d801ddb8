"""Rewrite a SavedModel so that its signatures and weights alone decide the bytes of its files.

TensorFlow numbers the functions and tensors of a process, of which a resumed training has made
others than one that was never killed. It stores the functions in no order, and adds a random ID.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any

from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from trainer.data import storage
from trainer.data.storage import join

_UNUSED = "___redundant_placeholder"
"""In the name of an argument that a loop's function ignores; the function's name precedes it."""
_NUMBER = re.compile(rf"(?<=_)\d+(?=$|{_UNUSED})")
_TENSOR = "_user_specified_name"
"""Attribute of an argument; of one that a function has captured, it is a tensor's number."""


def rewrite(uri: str) -> None:
    """Rewrite the graph and the fingerprint of the SavedModel at `uri`."""
    path = join(uri, "saved_model.pb")
    model = saved_model_pb2.SavedModel.FromString(storage.read(path))
    for graph in model.meta_graphs:
        _number_functions(graph)
    content = model.SerializeToString(deterministic=True)
    storage.write_atomically(path, content)
    path = join(uri, "fingerprint.pb")
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(storage.read(path))
    digest = hashlib.sha256(content).digest()
    fingerprint.saved_model_checksum = int.from_bytes(digest[:8], "big")
    fingerprint.uuid = str(int.from_bytes(digest[8:24], "big"))
    storage.write_atomically(path, fingerprint.SerializeToString(deterministic=True))


def _number_functions(graph: Any) -> None:
    """Number the functions of a MetaGraphDef from 0 in the order in which they were made."""
    functions = graph.graph_def.library.function
    names = {function.signature.name for function in functions}
    numbers = {int(match[0]) for match in map(_NUMBER.search, names) if match}
    places = {str(number): str(place) for place, number in enumerate(sorted(numbers))}

    def new_name(text: str) -> str:
        if text not in names and _UNUSED not in text:
            return text
        return _NUMBER.sub(lambda match: places.get(match[0], match[0]), text)

    _rename(graph, new_name)
    for function in functions:
        for argument in function.arg_attr.values():
            if _TENSOR in argument.attr and argument.attr[_TENSOR].s.isdigit():
                del argument.attr[_TENSOR]
    functions.sort(key=lambda function: function.signature.name)


def _rename(message: Any, new_name: Callable[[str], str]) -> None:
    """Replace the texts in a message, and the keys of its maps of messages, by new names."""
    for field, value in message.ListFields():
        if not field.message_type:
            if isinstance(value, str):
                setattr(message, field.name, new_name(value))
            elif field.type == field.TYPE_STRING:
                value[:] = map(new_name, value)
        elif not field.message_type.GetOptions().map_entry:
            for part in [value] if hasattr(value, "ListFields") else value:
                _rename(part, new_name)
        elif field.message_type.fields_by_name["value"].message_type:
            for key in list(value):
                _rename(value[key], new_name)
                if isinstance(key, str) and new_name(key) != key:
                    value[new_name(key)].CopyFrom(value[key])
                    del value[key]
