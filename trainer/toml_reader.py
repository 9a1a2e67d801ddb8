"""The standard library's reader of TOML, which Python 3.10 does not have yet."""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
