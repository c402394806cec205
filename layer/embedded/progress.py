"""One line of news at a time, for work that takes longer than a glance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Drop the news."""
