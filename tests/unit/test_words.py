"""Names use the words of the field, in the source and in the tests.

A limit is MAX_X or MIN_X, a pause before a retry X_RETRY_INTERVAL_S.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("layer", "mapping", "schema_compat", "spark_connector")

CONSTANT = re.compile(r"\b[A-Z_][A-Z0-9_]+\b")
BAD_CONSTANT = re.compile(r"(?:^|_)(?<!AT_)(?:MOST|LEAST)(?:_(?!BITS\b)|$)|_AGAIN_S$")
"""Pulsar's own fields are called most_bits and least_bits."""


def _modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _bad_constants(text: str) -> list[str]:
    return [name for name in CONSTANT.findall(text) if BAD_CONSTANT.search(name)]


def test_limits_and_pauses_have_the_field_s_words() -> None:
    bad = {
        str(path.relative_to(ROOT)): found
        for path in _modules(*SOURCES, "tests")
        if path != Path(__file__) and (found := _bad_constants(path.read_text(encoding="utf-8")))
    }
    assert not bad, "expected MAX_X, MIN_X and X_RETRY_INTERVAL_S"


@pytest.mark.parametrize("name", ["MOST_BYTES", "_MOST_BYTES", "LEAST_BYTES", "HELD_MOST", "_HELD_MOST", "X_AGAIN_S"])
def test_a_constant_with_another_word_is_found(name: str) -> None:
    assert _bad_constants(f"{name} = 1") == [name]


@pytest.mark.parametrize("name", ["MAX_BYTES", "_TXN_MOST_BITS", "_MAX_LEAST_BITS", "RATIO_AT_MOST", "ALMOST_FULL"])
def test_a_constant_with_the_field_s_word_passes(name: str) -> None:
    assert not _bad_constants(f"{name} = 1")
