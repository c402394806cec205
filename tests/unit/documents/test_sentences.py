"""A sentence of a page has at most 25 words. Pages that are not yet rewritten have an allowance, which only shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import MAX_SENTENCE_WORDS, ROOT, long_sentences, pages, sentences
from tests.unit.documents.long_sentences import ALLOWED


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    found = long_sentences(page)
    allowed = ALLOWED.get(str(page.relative_to(ROOT)), 0)
    assert len(found) <= allowed, f"at most {allowed} sentences of more than {MAX_SENTENCE_WORDS} words:\n" + "\n".join(
        found
    )


def test_an_allowance_belongs_to_a_page() -> None:
    assert set(ALLOWED) <= {str(page.relative_to(ROOT)) for page in pages()}


def test_words_of_a_sentence_are_counted_without_its_markup(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A head\n\nIt is [a link](x.md), `some code` here.\nTwo.\n\n| a b | c |\n|---|---|\n| d. E | f |\n"
    )
    assert [text for _, text in sentences(page)] == [
        *("A head", "It is a link, code here.", "Two."),
        *("a b", "c", "d.", "E", "f"),
    ]
