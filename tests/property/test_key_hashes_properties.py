"""Hashes of keys are those of the official client: its own C++ code is called."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.routing.key_hashes import HASHES, KeyHash

ANY: Final = st.binary(max_size=70)
ASCII: Final = ANY.map(lambda key: bytes(byte & 0x7F for byte in key))


class _String(ctypes.Structure):
    """`std::string` of libstdc++."""

    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t), ("inside", ctypes.c_char * 16)]


def hash_of_the_official_client(scheme: KeyHash) -> Callable[[bytes], int]:
    found = importlib.util.find_spec("_pulsar")
    libraries = (
        [] if found is None or found.origin is None else Path(found.origin).parent.glob("pulsar_client.libs/libp*")
    )
    for library in libraries:
        mangled = f"_ZN6pulsar{len(scheme.value)}{scheme.value}"
        try:
            loaded = ctypes.CDLL(str(library))
            construct = getattr(loaded, f"{mangled}C1Ev")
            call = getattr(loaded, f"{mangled}8makeHashERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE")
        except (AttributeError, OSError):
            continue
        construct.argtypes, construct.restype = [ctypes.c_void_p], None
        call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int32
        hasher = ctypes.create_string_buffer(64)
        construct(hasher)
        return partial(_hashed, call, hasher)
    pytest.skip("there is no libpulsar of a Linux wheel of pulsar-client")


def _hashed(call: Callable[[Any, Any], int], hasher: Any, key: bytes) -> int:
    characters = ctypes.create_string_buffer(key, len(key) + 1)
    text = _String(ctypes.addressof(characters), len(key), b"")
    return call(hasher, ctypes.byref(text))


@pytest.mark.parametrize(
    ("scheme", "keys"), [(KeyHash.BOOST, ANY), (KeyHash.MURMUR3_32, ANY), (KeyHash.JAVA_STRING, ASCII)]
)
def test_a_key_has_the_hash_that_the_official_client_gives_it(scheme: KeyHash, keys: st.SearchStrategy[bytes]) -> None:
    theirs = hash_of_the_official_client(scheme)

    @given(keys)
    def the_same(key: bytes) -> None:
        assert HASHES[scheme](key) == theirs(key)

    the_same()


def units(text: str) -> list[int]:
    """UTF-16, by its definition."""
    found: list[int] = []
    for character in map(ord, text):
        if character >= 0x10000:
            found += [0xD800 + (character - 0x10000 >> 10), 0xDC00 + (character & 0x3FF)]
        else:
            found.append(character)
    return found


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_javas_is_the_polynomial_of_its_characters(text: str) -> None:
    places = units(text)
    whole = sum(unit * 31 ** (len(places) - 1 - at) for at, unit in enumerate(places))
    assert HASHES[KeyHash.JAVA_STRING](text.encode()) == whole % 2**31
