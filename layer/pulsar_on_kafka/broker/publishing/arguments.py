"""Checks of arguments, with the official client's choice of built-in exceptions."""

from __future__ import annotations

from typing import Any, TypeVar

from pulsar_on_kafka.exceptions import InvalidConfiguration, NotSupported

_T = TypeVar("_T")


def check_type(kind: type[Any] | tuple[type[Any], ...], name: str, value: object) -> None:
    """Raises ValueError, as the official `_check_type`; a bool is no int."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(each.__name__ for each in kinds)
        raise ValueError(
            f"Argument {name} is expected to be of type {expected}, got {type(value).__name__}: {value!r:.60}"
        )


def of_type(kind: type[_T], name: str, value: _T) -> _T:
    """The value. Raises TypeError, as what stands for the official extension; a bool is no int."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} is expected to be of type {kind.__name__}, got {type(value).__name__}: {value!r:.60}")
    return value


def check_type_or_none(kind: type[Any] | tuple[type[Any], ...], name: str, value: object) -> None:
    if value is not None:
        check_type(kind, name, value)


def check_texts(name: str, value: dict[Any, Any] | None) -> None:
    """None or a dict of str to str. Raises as officially: ValueError for no dict, TypeError for what is in it."""
    check_type_or_none(dict, name, value)
    for key, text in (value or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"{name} must map str to str, got {key!r:.60}: {text!r:.60}")


def check_range(name: str, value: int, least: int, most: int | None = None) -> None:
    """Raises InvalidConfiguration naming the value and what was expected."""
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"{least} to {most}"
        raise InvalidConfiguration(f"{name} must be {bounds}, got {value}")


def not_yet(feature: str, *, when: bool) -> None:
    """Raises NotSupported naming `feature` when it is requested."""
    if when:
        raise NotSupported(f"{feature}: not in this version")
