"""A key of `patternProperties` matches the names of properties.

The key is a regular expression that somebody else wrote, so it may take a Python matcher exponential time, or be of a
dialect that Python lacks. Such a pattern is compared as text alone, and what it matches counts as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_MAX_PATTERN: Final = 500
_MAX_NAME: Final = 256
_MAX_REPEATS: Final = 3

# A group that holds a repetition or a choice, or that is nested, and is repeated itself: (a+)+, (a|a)*, (.*,){9}.
_REPEATED_GROUP: Final = re.compile(r"\)\s*[*+{]")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,?\d*\}")
# Warned about or read otherwise by Python: sets within sets, flags, atomic groups, classes and escapes that ECMA lacks.
_FOREIGN: Final = re.compile(
    r"\[\[|\[\^?\]|--|&&|~~|\|\||\(\?(?!:|=|!|<=|<!)|\\[^\\dDwWsSbBtnrfv.*+?^$()\[\]{}|/-]|[*+?}]\+"
)


@dataclass(frozen=True, slots=True)
class PropertyPattern:
    """A pattern is a key of `patternProperties`; `compiled` is None where it can only be compared as text."""

    text: str
    compiled: re.Pattern[str] | None

    @classmethod
    def read(cls, text: str) -> PropertyPattern:
        """The pattern with that text; any text will do."""
        if (
            len(text) > _MAX_PATTERN
            or _FOREIGN.search(text)
            or _REPEATED_GROUP.search(text)
            or len(_REPEAT.findall(text)) > _MAX_REPEATS
        ):
            return cls(text, None)
        try:
            return cls(text, re.compile(text, re.ASCII))
        except (re.error, OverflowError, RecursionError):
            return cls(text, None)

    def matches(self, name: str) -> bool | None:
        """Whether it is found anywhere in `name`; None when that is unknown."""
        if self.compiled is None or len(name) > _MAX_NAME:
            return None
        return self.compiled.search(name) is not None
