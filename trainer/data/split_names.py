"""Parse the names of splits that folders and datasets use."""

import re

_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}
_SET = re.compile(r"[ _-]?(set|data)$")


def parse_split_name(name: str) -> str:
    """Return the split for a name such as "train" or "Test_Set"; empty if it names no split."""
    return _SPLIT_NAMES.get(_SET.sub("", name.lower()), "")
