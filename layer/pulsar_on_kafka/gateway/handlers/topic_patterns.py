"""Topic patterns of clients: the part of regular expressions that matches in linear time. Pure.

Any client may send a pattern, and an expression that backtracks would stop the whole gateway. So a pattern has
characters, escaped characters, `.`, `.*` and `.+`. Any other pattern is rejected, and its client polls instead. Differs
from Pulsar, whose brokers use RE2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName

MAX_CHARACTERS: Final = 500
_SCHEMES: Final = ("persistent://", "non-persistent://", "topic://")
_SPECIAL: Final = frozenset("[](){}|?*+^$")
_ANY: Final = None

_Piece = Sequence[str | None]
"""Characters in a row, `_ANY` for any one."""


class TopicPattern:
    """Matches whole names, without scheme and without a partition's suffix. Memory: the pattern."""

    def __init__(self, text: str) -> None:
        """Raises MappingError: the pattern is too long, or uses more of regular expressions."""
        if len(text) > MAX_CHARACTERS:
            raise MappingError(f"a pattern of topics has {len(text)} characters, expected {MAX_CHARACTERS} at most")
        for scheme in _SCHEMES:
            text = text.removeprefix(scheme)
        self._pieces = _pieces(text)

    def matches(self, name: TopicName) -> bool:
        text = str(name.base).partition("://")[2]
        first, *others = self._pieces
        if not _is_at(first, text, 0):
            return False
        at = len(first)
        if not others:
            return at == len(text)
        *middle, last = others
        for piece in middle:
            while not _is_at(piece, text, at):
                at += 1
                if at > len(text):
                    return False
            at += len(piece)
        return len(text) - len(last) >= at and _is_at(last, text, len(text) - len(last))


def _is_at(piece: _Piece, text: str, at: int) -> bool:
    if at + len(piece) > len(text):
        return False
    return all(each is _ANY or each == text[at + index] for index, each in enumerate(piece))


def _pieces(text: str) -> list[_Piece]:
    """The parts between `.*`."""
    pieces: list[list[str | None]] = [[]]
    text = text.removeprefix("^").removesuffix("$") if not text.endswith("\\$") else text.removeprefix("^")
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text) and not text[at].isalnum():
            pieces[-1].append(text[at])
            at += 1
        elif character == "." and text[at : at + 1] in ("*", "+"):
            if text[at] == "+":
                pieces[-1].append(_ANY)
            pieces.append([])
            at += 1
        elif character == ".":
            pieces[-1].append(_ANY)
        elif character == "\\" or character in _SPECIAL:
            raise MappingError(
                f"pattern {text[:60]!r} has {character!r}: expected characters, '.', '.*' and '.+' alone"
            )
        else:
            pieces[-1].append(character)
    return list(pieces)
