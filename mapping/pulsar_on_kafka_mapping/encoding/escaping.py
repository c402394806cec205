"""An escaper writes text in fewer letters: whatever is not allowed becomes `-x<code point in lowercase hex>-`.

    a.b  ->  a-x2e-b        a-b  ->  a-b        a-xb  ->  a-x2d-xb

A literal '-' before a literal 'x' is escaped itself. So, reading from left to right, '-x' where a character may begin
always begins an escape, and every text has exactly one form. (Inside of `a-x2d-xb` the closing '-' of the escape also
stands before an 'x'; it is no beginning, since the escape has taken it.)
"""

from __future__ import annotations

import re
from typing import Final

_UNIT: Final = re.compile(r"-x[0-9a-f]{1,6}-|.", re.DOTALL)
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Escaper:
    """An escaper writes text in ASCII letters, digits, '-' and the further `literals`."""

    __slots__ = ("_escaped",)

    def __init__(self, literals: str = "") -> None:
        self._escaped = re.compile(f"-(?=x)|[^A-Za-z0-9{re.escape(literals)}-]")

    def escape(self, text: str) -> str:
        """Injective: no two texts have the same form. A text of n characters takes at most 9 n."""
        return self._escaped.sub(_escape_of, text)


def units(escaped: str) -> list[str]:
    """The forms of the single characters, in order: a cut between two of them never splits an escape."""
    return _UNIT.findall(escaped)


def unprintable(text: str) -> str | None:
    """The first character that a name must not have: a control character (C0, DEL, C1) or a lone surrogate."""
    found = _UNPRINTABLE.search(text)
    return None if found is None else found[0]


def _escape_of(found: re.Match[str]) -> str:
    return f"-x{ord(found[0]):x}-"
