"""Pages of the documentation as tests read them: their blocks of code, and the commands in their prose.

A block's language says what it is:

    python    a program, or a part of one
    console   `$ command` lines, the lines below each are what it prints
    sh        command lines
    json      a file
    text      a picture, or what a program prints
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
_NOT_OURS = {"build", "dist", "__pycache__"}

LANGUAGES = frozenset({"python", "console", "sh", "json", "text"})
COMMANDS = frozenset({"console", "sh"})


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of `page`, whose text begins behind `line`."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def folders(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders with the names of their files; links between folders are not followed."""
    for folder, inner, files in os.walk(top):
        inner[:] = [name for name in inner if name not in _NOT_OURS and not name.startswith(".")]
        yield Path(folder), files


def pages() -> list[Path]:
    return sorted(folder / name for folder, files in folders(ROOT) for name in files if name.endswith(".md"))


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """In their order; a block that says no language has none."""
    code = [token for token in _tokens(page) if token.type in ("fence", "code_block")]
    return tuple(Block(page, token.map[0] + 1 if token.map else 0, token.info.strip(), token.content) for token in code)


def commands(block: Block) -> list[str]:
    """The command lines of a `console` or `sh` block; lines that end with a backslash go on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "sh":
        return [line for line in lines if line.strip() and not line.startswith("#")]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Code within the lines of prose and tables, with the line where its paragraph or cell begins."""
    for token in _tokens(page):
        for child in token.children or ():
            if child.type == "code_inline":
                yield (token.map[0] + 1 if token.map else 0), child.content


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
