"""An option table is a dataclass that declares the options of an official method once: their names, order, defaults,
types and checks."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable
from difflib import get_close_matches
from functools import cache, wraps
from inspect import iscoroutinefunction
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pulsar_on_kafka.broker.publishing.arguments import check_range, check_type
from pulsar_on_kafka.schema.plain import BytesSchema, Schema

_Given = ParamSpec("_Given")
_Options = TypeVar("_Options", bound="OptionTable")
_Self = TypeVar("_Self")
_Made = TypeVar("_Made")


class OptionTable(Protocol):
    """A dataclass of official options: its fields are the parameters of the method with them (`takes`), in their order
    and with their defaults. An annotation declares the checks of an option: its type, and the additions of
    `Annotated`."""

    def check(self) -> None:
        """Raises ValueError, TypeError or InvalidConfiguration, naming the value and what was expected."""
        ...


class OptionRange(NamedTuple):
    """A number is `least` to `most`, or the value is None: else InvalidConfiguration."""

    least: int
    most: int | None = None


BYTES: Final[Schema[Any]] = BytesSchema()
ELSEWHERE: Final = "elsewhere"
"""The user of the option checks its type."""


def takes(
    table: Callable[_Given, _Options],
) -> Callable[[Callable[[_Self, _Options], _Made]], Callable[Concatenate[_Self, _Given], _Made]]:
    """A method takes the options of a table, each as a parameter of its own, and is given them checked. A coroutine
    checks them when it is awaited."""

    def taking(method: Callable[[_Self, _Options], _Made]) -> Callable[Concatenate[_Self, _Given], _Made]:
        own, types = inspect.signature(method), get_type_hints(table)
        each = [one.replace(annotation=types[name]) for name, one in inspect.signature(table).parameters.items()]
        signature = own.replace(parameters=[next(iter(own.parameters.values())), *each])

        @wraps(method)
        def called(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
            try:
                signature.bind(self, *args, **kwargs)  # or the error would name the table
            except TypeError as refused:
                raise _named(refused, method.__name__, kwargs, signature.parameters) from None
            options = table(*args, **kwargs)
            options.check()
            return method(self, options)

        @wraps(method)
        async def awaited(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> Any:
            return await cast("Awaitable[Any]", called(self, *args, **kwargs))

        taken: Any = awaited if iscoroutinefunction(method) else called
        taken.__signature__ = signature  # what `inspect.signature` gives
        return cast("Callable[Concatenate[_Self, _Given], _Made]", taken)

    return taking


def _named(refused: TypeError, method: str, given: Iterable[str], known: Collection[str]) -> TypeError:
    """An error that begins with the method, and names the parameter that an unknown one resembles most."""
    text = f"{method}() {refused}"
    unknown = next((name for name in given if name not in known), None)
    nearest = get_close_matches(unknown, known, 1) if unknown is not None else []
    return TypeError(f"{text}. Did you mean {nearest[0]!r}?" if nearest else text)


def check_table(options: OptionTable) -> None:
    """Check each option by its annotation.

    Raises:
        ValueError: it is of another type.
        InvalidConfiguration: it is out of range.
    """
    for name, kinds, bounds in _checks(type(options)):
        value = getattr(options, name)
        if value is None and NoneType in kinds:
            continue
        if Callable not in kinds:
            check_type(tuple(kind for kind in kinds if kind is not NoneType), name, value)
        elif not callable(value):
            raise ValueError(f"{name} must be callable, got {value!r:.60}")
        if bounds is not None:
            check_range(name, value, *bounds)


@cache
def _checks(table: type[OptionTable]) -> list[tuple[str, tuple[Any, ...], OptionRange | None]]:
    found = []
    hints = get_type_hints(table, include_extras=True)
    for name in inspect.signature(table).parameters:
        hint = hints[name]
        plain, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if ELSEWHERE not in more:
            kinds = get_args(plain) if get_origin(plain) in (Union, UnionType) else (plain,)
            bounds = next((each for each in more if isinstance(each, OptionRange)), None)
            found.append((name, tuple(get_origin(kind) or kind for kind in kinds), bounds))
    return found
