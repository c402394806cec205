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

from pulsar_on_kafka_mapping import state as state_records
from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError, NewerFormat
from pulsar_on_kafka_mapping.state.codecs.layouts import read_bitmap
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import decode as decode_request
from pulsar_on_kafka_mapping.state.cursors.cursor_state import HOLES
from pulsar_on_kafka_mapping.state.state_keys import decode_key
from tests.seeds import examples
from tests.state_values import VALUES, Case

_WORD: Final = re.compile(r"\"([a-z_]{1,30})\"|^    ([a-z_]+): ", re.MULTILINE)
_FREE: Final = ("policies", "properties", "kafka_config", "metadata")
"""Members that are mappings of whatever names: nothing in them is unknown."""
_REAL_NUMBERS = {"blocked_s", "rate", "lease_age_s", "for_s", "throughput", "redelivered", "acknowledged"}
_WRONG: Final[tuple[Any, ...]] = ({"a": []}, [{}], True, 1.5, "\u00fc", 2**63)
_LATER: Final = {"of_a_later_version": [{"x": None}, "y", -1.5]}


def _decoders() -> list[Any]:
    found = [pytest.param(decode_key, [], id="decode_key")]
    for module in pkgutil.walk_packages(state_records.__path__, f"{state_records.__name__}."):
        loaded = importlib.import_module(module.name)
        source = inspect.getsource(loaded)
        words = sorted({one or other for one, other in _WORD.findall(source)})
        for name, decode in vars(loaded).items():
            is_own = f"def {name}(" in source or re.search(rf"^(?:\w+, )?{name}(?:: Final)? = ", source, re.MULTILINE)
            if name.startswith("decode") and is_own:
                wanted = [each for each in inspect.signature(decode).parameters.values() if each.default is each.empty]
                if len(wanted) == 1 and wanted[0].annotation == "bytes":
                    found.append(pytest.param(decode, words, id=f"{module.name.rpartition('.')[2]}.{name}"))
    return found


def test_the_decoders_of_all_state_topics_are_found() -> None:
    assert len(_decoders()) >= 30


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


@pytest.mark.hypothesis
@pytest.mark.parametrize(("decode", "words"), _decoders())
def test_no_bytes_raise_anything_else(decode: Callable[[bytes], object], words: list[str]) -> None:
    first = st.sampled_from([b"", b"\x00", b"\x01", b"\x02", b"\x03"])
    versions = st.sampled_from([1, 2, 3])

    @settings(max_examples=examples(60))
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


# Of what is written, something else ----------------------------------------------------------------------------------


def _json(case: Case) -> tuple[dict[str, Any], bytes] | None:
    """The object, and what stands behind it; None for what is binary."""
    line, feed, behind = case.encode(case.value).partition(b"\n")
    return (orjson.loads(line), feed + behind) if line[:1] == b"{" else None


_PASSED_OVER_WHEN_NEWER: Final = {name for name, case in VALUES.items() if case.decode is decode_request}
"""Kinds of which a later version has more: nobody waits for those."""
_OF_JSON: Final = {name: case for name, case in VALUES.items() if _json(case) is not None}


def _places(said: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Of everything in a JSON value, itself included."""
    items = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    return [path, *(each for name, item in items for each in _places(item, (*path, name)))]


def _at(said: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        said = said[step]
    return said


def _refused(case: Case, data: bytes) -> bool:
    try:
        case.decode(data)
    except CorruptRecord:
        return True
    return False


def _declared(path: tuple[str | int, ...]) -> bool:
    return not any(step in _FREE for step in path)


@pytest.mark.parametrize("name", _OF_JSON)
def test_unknown_members_pass_at_every_depth(name: str) -> None:
    case = _OF_JSON[name]
    known = _json(case)
    assert known is not None
    for path in _places(known[0]):
        said, behind = orjson.loads(orjson.dumps(known[0])), known[1]
        inner = _at(said, path)
        mapping = path and path[-1] in ("claims", "seats", "joining", "clusters", "listeners", "unused", "compacted_to")
        mapping = mapping or (path and path[-1] in ("deletion_ends", "start_offsets", "topic_epochs", "unanswered"))
        mapping = mapping or (path and path[-1] == "terminated") or "auth" in path[:-1]
        if isinstance(inner, dict) and _declared(path) and not mapping:
            inner.update(_LATER)
            read = case.decode(orjson.dumps(said) + behind)
            assert read == (case.value if case.read is None else case.read), path


@pytest.mark.parametrize("name", _OF_JSON)
def test_wrong_types_are_corrupt_at_every_depth(name: str) -> None:
    """A number is no text, text no number, neither a list; and no number is a truth."""
    case = _OF_JSON[name]
    known = _json(case)
    assert known is not None
    for path in _places(known[0]):
        if not path or not _declared(path[:-1]) or path == ("v",):
            continue
        for wrong in _WRONG:
            said, behind = orjson.loads(orjson.dumps(known[0])), known[1]
            right = _at(said, path)
            if isinstance(right, str if isinstance(wrong, str) else type(wrong)) and type(right) is type(wrong):
                continue
            if path[-1] in _REAL_NUMBERS and wrong in (1.5, 2**63):
                continue
            _at(said, path[:-1])[path[-1]] = wrong
            if path in (("ask",), ("answer",), ("told",)):  # then it may be of a kind that a later version has
                with suppress(CorruptRecord):
                    assert case.decode(orjson.dumps(said) + behind) is None
                continue
            assert _refused(case, orjson.dumps(said) + behind), f"{path} was taken as {wrong!r}"


@pytest.mark.parametrize("name", VALUES)
def test_cut_or_lengthened_bytes_are_corrupt_or_another_value(name: str) -> None:
    case = VALUES[name]
    data = case.encode(case.value)
    for other in (*(data[:end] for end in range(len(data))), data + b"\x00", data + b"\x01", data + b"\xff" * 20):
        with suppress(CorruptRecord):
            assert case.decode(other) != (case.value if case.read is None else case.read)


@pytest.mark.parametrize("name", VALUES)
def test_a_changed_byte_is_corrupt_or_another_value(name: str) -> None:
    case = VALUES[name]
    data = case.encode(case.value)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            with suppress(CorruptRecord):
                case.decode(data[:at] + bytes((data[at] ^ flip,)) + data[at + 1 :])


@pytest.mark.parametrize("name", _OF_JSON)
def test_a_newer_format_is_told_apart(name: str) -> None:
    known = _json(_OF_JSON[name])
    assert known is not None
    value = orjson.dumps({**known[0], "v": 99}) + known[1]
    if name in _PASSED_OVER_WHEN_NEWER:
        assert _OF_JSON[name].decode(value) is None
    else:
        with pytest.raises(NewerFormat, match="format 99, this version reads 1"):
            _OF_JSON[name].decode(value)


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_a_deep_value_is_corrupt_or_passes(depth: int) -> None:
    for name, case in _OF_JSON.items():
        known = _json(case)
        assert known is not None
        head = orjson.dumps(known[0])[:-1]
        with suppress(CorruptRecord):
            case.decode(head + b',"of_a_later_version":' + b"[" * depth + b"]" * depth + b"}" + known[1])
            assert name


@pytest.mark.parametrize("name", _OF_JSON)
def test_text_that_is_no_unicode_is_corrupt(name: str) -> None:
    case = _OF_JSON[name]
    known = _json(case)
    assert known is not None
    for path in _places(known[0]):
        said, behind = orjson.loads(orjson.dumps(known[0])), known[1]
        if isinstance(_at(said, path), str):
            _at(said, path[:-1])[path[-1]] = "LONE"
            for lone in (b"\\ud800", b"\\udc00", b"\xed\xa0\x80", b"\xff"):
                with suppress(MappingError):
                    assert case.decode(orjson.dumps(said).replace(b"LONE", lone) + behind) is None


@pytest.mark.parametrize("read", [HOLES.read, read_bitmap])
def test_an_empty_bitmap_is_a_corrupt_record_or_none(read: Callable[[ByteReader], object]) -> None:
    for value in (b"", b"\x00", b"\x00" * 4, b"\x00" * 5):
        with suppress(CorruptRecord):
            read(ByteReader(value, "holes"))
