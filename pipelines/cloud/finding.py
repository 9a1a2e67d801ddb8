"""What the doctor says of one thing that it has looked at."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check came to.

    Attributes:
        ok: None where it could not be checked.
        what: was looked at, and what was found.
        mend: what to do where it is not ok.
    """

    ok: bool | None
    what: str
    mend: str = ""
