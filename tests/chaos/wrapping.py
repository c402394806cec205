"""Replaces a method of the product by one that does something before or after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, original: Callable[..., Any], around: Callable[..., Any]) -> None:
    """`owner` has `around(original, ...)` in place of `original(...)`.

    Callers pass the function, not its name: mypy then finds them when the function moves.
    """

    @functools.wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    assert getattr(owner, original.__name__) is original, f"{owner} has no {original.__qualname__} of its own"
    setattr(owner, original.__name__, wrapper)
