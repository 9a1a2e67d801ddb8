"""A finding of the doctor's on one thing that it has looked at."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes:
        ok: None where it could not be checked.
        what: was looked at, and what was found.
        mend: what to do where it is not ok.
    """

    ok: bool | None
    what: str
    mend: str = ""
