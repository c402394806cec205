"""A sentence of a page has at most 25 words, and a page none of the replaced words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import MAX_SENTENCE_WORDS, ROOT, long_sentences, pages, sentences
from tests.house import REPLACED_WORDS


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short_and_use_the_words_of_the_field(page: Path) -> None:
    found = long_sentences(page)
    assert not found, f"sentences of more than {MAX_SENTENCE_WORDS} words:\n" + "\n".join(found)
    replaced = [f"line {line}: {text}" for line, text in sentences(page) if REPLACED_WORDS.search(text)]
    assert not replaced, "words that tests/house.py replaces:\n" + "\n".join(replaced)


def test_words_of_a_sentence_are_counted_without_its_markup(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A head\n\nIt is [a link](x.md), `some code` here.\nTwo.\n\n| a b | c |\n|---|---|\n| d. E | f |\n"
    )
    assert [text for _, text in sentences(page)] == [
        *("A head", "It is a link, code here.", "Two."),
        *("a b", "c", "d.", "E", "f"),
    ]
