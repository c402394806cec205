"""JSON text becomes values without recursion, with exact numbers.

The standard parser recurses, so how deep a text may be nested would depend on who calls; and its floats lose digits
that `multipleOf` and `enum` compare. Objects, arrays, strings, booleans and null become Python's; an integer, however
spelt (`3`, `3.0`, `30e-1`), becomes `int`, any other number `Decimal`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from json import decoder
from typing import Any, Final

# Numbers beyond this many digits, written out, are refused: their arithmetic could take all memory.
MAX_NUMBER_DIGITS: Final = 1000
# Arrays and objects within each other; deeper than any schema, and still little memory.
MAX_DEPTH: Final = 20_000

# Public in name, but unknown to the type stubs: (text, first character after the quote, strict) -> (string, end).
_SCAN_STRING: Final[Callable[[str, int, bool], tuple[str, int]]] = decoder.scanstring  # type: ignore[attr-defined]
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9]\d*))(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_WORDS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class NotJson(ValueError):
    """The text is no JSON. The message names the fault and its place, by character from 0."""


def parse_json(data: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value that `data` stands for: UTF-8, with or without a byte order mark. Of equal names the last one counts.

    Raises:
        NotJson: anything else.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8: byte {error.object[error.start]:#04x} at {error.start}") from None
    return _Reader(text, max_depth).document()


class _Reader:
    """The reader passes over a text once; `_open` holds the arrays and objects that are not closed yet, outermost
    first."""

    def __init__(self, text: str, max_depth: int) -> None:
        self._text = text
        self._max_depth = max_depth
        self._at = 0
        self._open: list[tuple[Any, str | None]] = []

    def document(self) -> Any:
        value = self._value()
        while self._open:
            container, name = self._open[-1]
            if name is not None:
                container[name] = value
            else:
                container.append(value)
            value = self._after_member()
        if self._peek():
            raise self._unexpected("the end")
        return value

    def _value(self) -> Any:
        """The next value; goes into arrays and objects until a value is complete (an empty container is)."""
        while True:
            first = self._peek()
            if len(self._open) > self._max_depth:
                raise NotJson(f"nested deeper than {self._max_depth} levels at character {self._at}")
            if first == "{":
                self._at += 1
                if self._peek() == "}":
                    self._at += 1
                    return {}
                self._open.append(({}, self._name()))
            elif first == "[":
                self._at += 1
                if self._peek() == "]":
                    self._at += 1
                    return []
                self._open.append(([], None))
            else:
                return self._scalar(first)

    def _after_member(self) -> Any:
        """The next complete value: the innermost container when it closes here, otherwise its next member's value."""
        container, name = self._open.pop()
        found, closing = self._peek(), "]" if name is None else "}"
        if found == closing:
            self._at += 1
            return container
        if found != ",":
            raise self._unexpected(f"',' or '{closing}'")
        self._at += 1
        self._open.append((container, None if name is None else self._name()))
        return self._value()

    def _name(self) -> str:
        if self._peek() != '"':
            raise self._unexpected("a name in quotes")
        name = self._string()
        if self._peek() != ":":
            raise self._unexpected("':'")
        self._at += 1
        return name

    def _scalar(self, first: str) -> Any:
        if first == '"':
            return self._string()
        if first in _WORDS:
            word, value = _WORDS[first]
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._unexpected("a value")
        self._at = number.end()
        return _number(number)

    def _string(self) -> str:
        try:
            text, self._at = _SCAN_STRING(self._text, self._at + 1, True)
        except ValueError as error:
            raise NotJson(str(error)) from None
        return text

    def _peek(self) -> str:
        """The next character that is no white space, or "" at the end; the position stays on it."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _unexpected(self, required: str) -> NotJson:
        found = self._text[self._at : self._at + 12]
        return NotJson(
            f"expected {required} at character {self._at}, found {found!r}" if found else f"ends before {required}"
        )


def _number(match: re.Match[str]) -> int | Decimal:
    integer, fraction, exponent = match.groups()
    if len(match.group()) > MAX_NUMBER_DIGITS:
        raise NotJson(f"a number of more than {MAX_NUMBER_DIGITS} characters: {match.group()[:40]}...")
    if fraction is None and exponent is None:
        return int(integer)
    try:
        value = Decimal(match.group())
    except InvalidOperation:
        raise NotJson(f"a number out of range: {match.group()[:40]}") from None
    if value and abs(value.adjusted()) > MAX_NUMBER_DIGITS:
        raise NotJson(f"a number out of range: {match.group()[:40]}")
    return int(value) if value == value.to_integral_value() else value


def shown(value: object, length: int = 60) -> str:
    """A few words for messages; arrays and objects are not written out, as deep ones could not be."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    return f"{value!r:.{length}}"


def canonical(value: object) -> bytes:
    """Bytes that are equal for equal JSON values alone: 1 equals 1.0 but not true, and names have no order."""
    return canonical_member(value, digests(value))


def digests(value: object) -> dict[int, bytes]:
    """A digest of each array and object within `value`, and of itself, by `id`; see `canonical`."""
    done: dict[int, bytes] = {}
    pending = [(value, False)]
    while pending:
        current, members_done = pending.pop()
        if not isinstance(current, dict | list):
            continue
        if not members_done:
            pending.append((current, True))
            pending.extend((member, False) for member in (current.values() if isinstance(current, dict) else current))
            continue
        digest = hashlib.sha256(b"{" if isinstance(current, dict) else b"[")
        members = sorted(current.items()) if isinstance(current, dict) else [("", member) for member in current]
        for name, member in members:
            for part in (name.encode("utf-8", "surrogatepass"), canonical_member(member, done)):
                digest.update(len(part).to_bytes(8, "big") + part)
        done[id(current)] = digest.digest()
    return done


def canonical_member(value: Any, done: dict[int, bytes]) -> bytes:
    """`canonical` of a part of the value that `digests` was made for."""
    match value:
        case dict() | list():
            return b"c" + done[id(value)]
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bool() | None:
            return b"w" + str(value).encode()
        case _:
            return b"n" + str(Fraction(value)).encode()
