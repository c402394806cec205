"""Markdown as GitHub reads it (CommonMark) in the form that Python-Markdown needs for the same result.

Python-Markdown needs empty lines between blocks, and four spaces for each level of a list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

_APART = frozenset({"table_open", "fence"})
"""Blocks with empty lines around them, also within a list; so are all blocks that are in no other."""
_MARKER = re.compile(r" *(?:[*+-]|\d+[.)]) +")
_INDENT = 4


_COUNTED = frozenset({"h1", "h2", "h3", "h4", "li", "pre", "table", "tr"})


def for_python_markdown(markdown: str) -> str:
    lines = markdown.split("\n")
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    _indent_items(lines, tokens)
    begins: set[int] = set()
    for token in tokens:
        if token.map and (token.level == 0 or token.type in _APART):
            begins.update(token.map)
        elif token.map and token.type == "list_item_open" and "" in map(str.strip, lines[token.map[0] : token.map[1]]):
            begins.add(token.map[1])
    for line in sorted(begins, reverse=True):
        if 0 < line < len(lines) and lines[line - 1].strip() and lines[line].strip():
            lines.insert(line, "")
    return "\n".join(lines)


def _indent_items(lines: list[str], tokens: Sequence[Token]) -> None:
    """Indents the lines of each list item, which are those of the items within it, too: these come later and win."""
    before = list(lines)
    depth = 0
    for token in tokens:
        if token.type == "list_item_close":
            depth -= 1
        if token.type != "list_item_open" or not token.map:
            continue
        depth += 1
        first, end = token.map
        marker = _MARKER.match(before[first])
        width = marker.end() if marker else 0
        lines[first] = " " * (_INDENT * (depth - 1)) + before[first].lstrip(" ")
        for line in range(first + 1, end):
            text = before[line]
            inside = text[width:] if not text[:width].strip() else text.lstrip(" ")
            lines[line] = " " * (_INDENT * depth) + inside if inside.strip() else ""


class _Blocks(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += tag in _COUNTED


def _blocks(html: str) -> Counter[str]:
    parser = _Blocks()
    parser.feed(html)
    parser.close()
    return parser.count


def differing_blocks(markdown: str, html: str) -> list[str]:
    """Tags whose number in `html`, made by Python-Markdown, is another than CommonMark's."""
    expected, found = _blocks(MarkdownIt("commonmark").enable("table").render(markdown)), _blocks(html)
    return [
        f"{tag}: {found[tag]} instead of {expected[tag]}" for tag in sorted(_COUNTED) if found[tag] != expected[tag]
    ]
