"""The interfaces of Pulsar Functions, beside the official ones."""

from __future__ import annotations

import inspect
from typing import Any

import pulsar.functions.serde as official_serde
import pytest
from pulsar.functions.context import Context as OfficialContext
from pulsar.functions.function import Function as OfficialFunction

import pulsar_on_kafka as ours


@pytest.mark.parametrize("value", [0, -7, 1.5, 1e300, complex(1, 2), "text", "1.0", "", "å", b"\xff\x00", b"12"])
def test_identity_serde_is_the_official_one(value: Any) -> None:
    official, mine = official_serde.IdentitySerDe(), ours.IdentitySerDe()
    data = mine.serialize(value)
    assert data == official.serialize(value)
    assert mine.deserialize(data) == official.deserialize(data)


def test_identity_serde_refuses_what_it_cannot_write() -> None:
    with pytest.raises(TypeError, match="takes int, float"):
        ours.IdentitySerDe().serialize(["list"])


def test_pickle_serde_gives_back_what_it_took() -> None:
    value = {"a": [1, 2, (3, None)]}
    assert ours.PickleSerDe().deserialize(ours.PickleSerDe().serialize(value)) == value


@pytest.mark.parametrize(("mine", "official"), [(ours.Context, OfficialContext), (ours.Function, OfficialFunction)])
def test_interfaces_have_the_official_methods(mine: type, official: type) -> None:
    for name, method in inspect.getmembers(official, inspect.isfunction):
        theirs = [(p.name, p.default) for p in inspect.signature(method).parameters.values()]
        own = [(p.name, p.default) for p in inspect.signature(getattr(mine, name)).parameters.values()]
        assert own == theirs, name


def test_what_is_not_implemented_names_itself() -> None:
    with pytest.raises(NotImplementedError, match="get_state"):
        ours.Context().get_state("key")
    with pytest.raises(NotImplementedError, match=r"Function\.process"):
        ours.Function().process(b"", ours.Context())
