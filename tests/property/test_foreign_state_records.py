"""Whatever stands in a state topic is a value or a `CorruptRecord`: nobody could deal with another exception."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_on_kafka.mapping import state as state_records
from pulsar_on_kafka.mapping.encoding.varint import Reader
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.state.codecs.bitmaps import read_bitmap
from pulsar_on_kafka.mapping.state.cursors.cursor_state import read_holes
from pulsar_on_kafka.mapping.state.state_keys import decode_key

_WORD: Final = re.compile(r"\"([a-z_]{1,30})\"|^    ([a-z_]+): ", re.MULTILINE)


def _decoders() -> list[Any]:
    found = [pytest.param(decode_key, [], id="decode_key")]
    for module in pkgutil.walk_packages(state_records.__path__, f"{state_records.__name__}."):
        loaded = importlib.import_module(module.name)
        words = sorted({one or other for one, other in _WORD.findall(inspect.getsource(loaded))})
        for name, decode in vars(loaded).items():
            if name.startswith("decode") and getattr(decode, "__module__", "") == loaded.__name__:
                wanted = [each for each in inspect.signature(decode).parameters.values() if each.default is each.empty]
                if len(wanted) == 1 and wanted[0].annotation == "bytes":
                    found.append(pytest.param(decode, words, id=f"{module.name.rpartition('.')[2]}.{name}"))
    return found


def test_the_decoders_of_all_state_topics_are_found() -> None:
    assert len(_decoders()) > 20


def _absurd(words: list[str]) -> st.SearchStrategy[Any]:
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8)
    )
    names = st.sampled_from(words) | st.text(max_size=3) if words else st.text(max_size=3)
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(names, inner, max_size=8), max_leaves=30
    )


@pytest.mark.parametrize(("decode", "words"), _decoders())
def test_no_bytes_raise_anything_else(decode: Callable[[bytes], object], words: list[str]) -> None:
    first = st.sampled_from([b"", b"\x00", b"\x01", b"\x02", b"\x03"])
    versions = st.sampled_from([1, 2, 3])

    @settings(max_examples=60)
    @given(
        st.one_of(
            st.builds(lambda before, rest: before + rest, first, st.binary(max_size=200)),
            st.builds(lambda before, said: before + orjson.dumps(said), first, _absurd(words)),
            st.builds(
                lambda version, said: orjson.dumps({**said, "v": version}),
                versions,
                st.dictionaries(st.sampled_from(words or ["v"]), _absurd(words), max_size=12),
            ),
        )
    )
    def check(value: bytes) -> None:
        with suppress(CorruptRecord):
            decode(value)

    check()


@pytest.mark.parametrize("read", [read_holes, read_bitmap])
def test_an_empty_bitmap_is_a_corrupt_record_or_none(read: Callable[[Reader], object]) -> None:
    for value in (b"", b"\x00", b"\x00" * 4, b"\x00" * 5):
        with suppress(CorruptRecord):
            read(Reader(value, "holes"))
