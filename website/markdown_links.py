"""Links of a Markdown page, outside code and comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_TOKEN = re.compile(
    r"^ *(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^ *(?P=fence)[^\n]*$"
    r"|(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<comment>^ *<!--.*?--> *\n|<!--.*?-->)"
    r"|(?P<opening>\]\(<?)(?P<target>[^)\s>]+)",
    re.MULTILINE | re.DOTALL,
)


def targets(markdown: str) -> Iterator[str]:
    for token in _TOKEN.finditer(markdown):
        if token["target"]:
            yield token["target"]


def replace_targets(markdown: str, replacement: Callable[[str], str]) -> str:
    """The page without comments, each target of a link replaced."""

    def replaced(token: re.Match[str]) -> str:
        if token["comment"]:
            return ""
        return f"{token['opening']}{replacement(token['target'])}" if token["target"] else token[0]

    return _TOKEN.sub(replaced, markdown)
