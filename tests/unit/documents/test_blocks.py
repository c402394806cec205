"""Every block of code in the documentation says what it is, and is that."""

from __future__ import annotations

import json

import pytest

from tests.documents import COMMANDS, LANGUAGES, Block, blocks, commands, pages


@pytest.mark.parametrize("block", [block for page in pages() for block in blocks(page)], ids=lambda block: block.where)
def test_a_block_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES, f"```{block.language}: say one of {sorted(LANGUAGES)}"
    if block.language in COMMANDS:
        assert commands(block), "no command in it: `console` has lines that begin with `$ `"
    if block.language == "python":
        compile(block.text, block.where, "exec")
    if block.language == "json":
        json.loads(block.text)
