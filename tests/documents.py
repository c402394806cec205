"""Pages of the documentation as tests read them: their blocks of code, and the commands in their prose.

A block's language says what becomes of it:

    python    runs; the blocks of one page share a namespace
    console   `$ command` lines run in the page's working folder, the lines below each are what it prints
    sh        command lines run; a `text` block marked `<!-- output -->` behind it is what the last one prints
    json      a file (see below), which a later block reads
    text      a picture, unless it is marked as output

What a reader need not see stands in HTML comments:

    <!-- runs: two clusters -->   where the next block runs, at the top of a page all: one of `PLACES` or `READ_ALONE`
    <!-- output -->               the next block is what the last command prints
    <!-- file: NAME -->           the next block is a file of that name in the page's working folder
    <!-- hidden: LANGUAGE         a block that runs, or with `file: NAME` is a file; its text ends with the comment
    ...
    -->

`pok` and `python` run; lines of `make`, `pip` and `docker` are read: what they name must be there.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
_NOT_OURS = {"build", "dist", "__pycache__"}

LANGUAGES = frozenset({"python", "console", "sh", "json", "text", "file"})
"""The last one is that of hidden files alone."""
PLACES = ("broker", "two clusters", "spark", "pulsar")
"""Who runs a page's blocks: `tests/integration/documents`, `tests/clusters`, `tests/spark` and `tests/from_pulsar`. Its
files are there in all of them."""
READ_ALONE = {
    "after hours": "Seen only after hours of a service's work.",
    "systemd": "A machine's own; `tests/unit/examples/test_systemd.py` reads the units.",
}
"""What no test runs, though the commands are looked up, and why. No other reason is taken."""
COMMANDS = frozenset({"console", "sh"})

_COMMENT = re.compile(r"<!--\s*(runs|output|file|hidden)(?::[ \t]*([^\n]*?))?[ \t]*(?:\n(.*?))?-->", re.DOTALL)
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"”]?\s+")
_SPOKEN = {"code_inline": "code", "softbreak": " ", "hardbreak": " ", "html_inline": "", "image": ""}
_VARIES = tuple(
    (re.compile(pattern), same)
    for pattern, same in {
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z": "<time>",
        r"127\.0\.0\.1:\d{4,5}": "<address>",
        r"localhost:\d{4,5}": "<address>",
        r"\b\d{12,}|\b\d+(?=:\d+\b(?!:\d\d))": "<number>",
        r"\b\d+\.\d+\.\d+\b(?!\.)( on .*)?": "<version>",
        r"pok-doctor-\w+": "<name>",
        r"cluster [\w-]{22}": "<cluster>",
        r"(\"producer\": \")[^\"]+": r"\1<producer>",
        r"\d+(\.\d+)? ms\b": "<ms>",
        r"\bin \d+s\b": "<seconds>",
        r"─+": "─",
        r"[ \t]+": " ",
    }.items()
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of `page`, whose text begins behind `line`."""

    page: Path
    line: int
    language: str
    text: str
    place: str
    file: str = ""
    is_output: bool = False

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language != "text" or self.is_output


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a block, and what it is to print; None where the page does not say."""

    line: str
    output: str | None = None


def folders(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders with the names of their files."""
    for folder, inner, files in os.walk(top):
        inner[:] = [name for name in inner if name not in _NOT_OURS and not name.startswith(".")]
        yield Path(folder), files


def pages() -> list[Path]:
    return sorted(folder / name for folder, files in folders(ROOT) for name in files if name.endswith(".md"))


def pages_of(place: str) -> list[Path]:
    """Pages with something that runs in `place`."""
    return [page for page in pages() if any(block.runs and block.place == place for block in blocks(page))]


def cases_of(place: str, long: Collection[str] = ()) -> list[object]:
    """For `parametrize`: `pages_of`, called by their paths; those of `long` are left to `make chaos`."""
    names = {str(page.relative_to(ROOT)): page for page in pages_of(place)}
    return [pytest.param(page, id=name, marks=pytest.mark.long if name in long else ()) for name, page in names.items()]


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """In their order, hidden ones among them."""
    found: list[Block] = []
    everywhere, place, name, is_output = PLACES[0], "", "", False
    for token in _tokens(page):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            for word, value, text in _COMMENT.findall(token.content):
                if word == "runs" and not found and line <= 2:
                    everywhere = value
                elif word == "runs":
                    place = value
                elif word == "output":
                    is_output = True
                elif word == "file" and not text:
                    name = value
                else:
                    language, file = (value, "") if word == "hidden" else ("file", value)
                    found.append(Block(page, line, language, text, place or everywhere, file))
        elif token.type in ("fence", "code_block"):
            language = token.info.strip() if token.type == "fence" else ""
            found.append(Block(page, line, language, token.content, place or everywhere, name, is_output))
            place, name, is_output = "", "", False
    return tuple(found)


def commands(block: Block) -> list[Command]:
    """The command lines of a `console` or `sh` block; lines that end with a backslash go on."""
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        return [Command(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", text, re.MULTILINE)
    return [Command(line, output or None) for line, output in found]


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Code within the lines of prose and tables, with the line where its paragraph or cell begins."""
    for token in _tokens(page):
        for child in token.children or ():
            if child.type == "code_inline":
                yield (token.map[0] + 1 if token.map else 0), child.content


def sentences(page: Path) -> Iterator[tuple[int, str]]:
    """Sentences of a page, with the line where the paragraph, item or cell begins. Inline code counts as one word."""
    for token in _tokens(page):
        if token.type == "inline":
            text = "".join(_SPOKEN.get(child.type, child.content) for child in token.children or ())
            for sentence in _SENTENCE_END.split(text):
                if sentence.strip():
                    yield (token.map[0] + 1 if token.map else 0), " ".join(sentence.split())


MAX_SENTENCE_WORDS = 25


def long_sentences(page: Path) -> list[str]:
    return [f"line {line}: {text}" for line, text in sentences(page) if len(text.split()) > MAX_SENTENCE_WORDS]


def prose(page: Path) -> str:
    """A page without blocks of code, in which `[a](b)` and `# c` mean something else."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return _LINK.findall(_CODE.sub("", prose(page)))


def is_absolute(link: str) -> bool:
    return re.match(r"[a-z][a-z+.-]*:", link) is not None


def anchor_of(heading: str) -> str:
    """The anchor that GitHub makes: the text in lower case without punctuation, spaces as hyphens."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.replace("`", "").strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(prose(page)):
        anchor = anchor_of(heading)
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return frozenset(found)


def leads_nowhere(page: Path, link: str) -> bool:
    """Whether the target of a relative link of `page` is no file or folder, or has no heading of that name."""
    path, _, anchor = unquote(link).partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in anchors(target))


def prints(expected: str, printed: str) -> bool:
    """Whether a page tells what was printed, but for times, ids, addresses, widths, and what `...` stands for."""
    pattern = re.escape(_canonical(expected)).replace("\\.\\.\\.\\\n", "(?:.*\n)*").replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, _canonical(printed)) is not None


def _canonical(text: str) -> str:
    for pattern, same in _VARIES:
        text = pattern.sub(same, text)
    return "".join(f"{line.strip()}\n" for line in text.strip().splitlines())


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
