"""Every block of code in the documentation is one that tests run, or a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.documents import COMMANDS, LANGUAGES, PLACES, READ_ALONE, ROOT, Block, blocks, commands, pages, prints

_BLOCKS = [block for page in pages() for block in blocks(page)]


@pytest.mark.parametrize("block", _BLOCKS, ids=lambda block: block.where)
def test_a_block_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES, f"```{block.language}: say one of {sorted(LANGUAGES)}"
    assert block.place in (*PLACES, *READ_ALONE)
    if block.language in COMMANDS:
        assert commands(block), "no command in it: `console` has lines that begin with `$ `"
    if block.language == "python":
        compile(block.text, block.where, "exec")
    if block.language == "json":
        assert block.file or block.place in READ_ALONE, "say `<!-- file: NAME -->`, and have a later block read it"
        json.loads(block.text)


def test_marks_stand_before_what_they_speak_of() -> None:
    page = ROOT / "page.md"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Path,
            "read_text",
            lambda *_, **__: "<!-- runs: spark -->\n<!-- output -->\n```text\n1\n```\n```text\n2\n```",
        )
        first, second = blocks.__wrapped__(page)
    assert (first.place, first.is_output) == ("spark", True)
    assert (second.place, second.is_output) == ("spark", False)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("a   1\n", "a 1"),
        ("name   size\n──────\nfirst  1\n", "name  size\n───────────\nfirst   1\n"),
        ("set to 2026-11-21T09:37:54.760Z", "set to 2027-01-02T03:04:05.678Z"),
        ("274886295552:0:1", "1168231104512:0:1"),
        ("first\n...\nlast\n", "first\nsecond\nthird\nlast\n"),
        ("first\n...\nlast\n", "first\nlast\n"),
    ],
)
def test_what_varies_is_told_by_the_page(expected: str, printed: str) -> None:
    assert prints(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [("a 1", "a 2"), ("first\n...\nlast\n", "first\nlast\nmore\n"), ("0:0", "0:1"), ("a\nb\n", "a\n")],
)
def test_anything_else_is_not(expected: str, printed: str) -> None:
    assert not prints(expected, printed)
