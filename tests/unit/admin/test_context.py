from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node


@raising_pulsar_errors
class _Component(AdminContext):
    def missing(self, topic: str) -> None:
        """Raises TopicNotFound."""
        raise errors.NoSuchTopic(f"topic {topic} does not exist")

    def missing_at_last(self) -> Iterator[int]:
        yield 1
        raise errors.NoSuchTopic("gone")

    def _inside(self) -> None:
        raise errors.NoSuchTopic("inside")


class _NodeWithNothing:
    @property
    def topics(self) -> object:
        raise errors.NoSuchTopic("asked of nothing")


def _component(kind: type[AdminContext] = _Component) -> AdminContext:
    return kind(cast("Node", _NodeWithNothing()), 1.0)


def test_a_public_method_raises_the_official_exception() -> None:
    component = cast("_Component", _component())
    with pytest.raises(exceptions.TopicNotFound, match="topic orders does not exist") as told:
        component.missing("orders")
    assert isinstance(told.value.__cause__, errors.NoSuchTopic)


def test_what_is_inside_raises_ours() -> None:
    with pytest.raises(errors.NoSuchTopic):
        cast("_Component", _component())._inside()


def test_a_generator_is_left_as_it_is() -> None:
    items = cast("_Component", _component()).missing_at_last()
    assert next(items) == 1
    with pytest.raises(errors.NoSuchTopic):
        next(items)


def test_a_method_keeps_its_signature_and_its_documentation() -> None:
    assert list(inspect.signature(_Component.missing).parameters) == ["self", "topic"]
    assert _Component.missing.__doc__ == "Raises TopicNotFound."


def test_every_public_method_of_the_client_raises_official_exceptions() -> None:
    """The only generator has `with pulsar_errors()` of its own."""
    methods: dict[str, Callable[..., object]] = dict(inspect.getmembers(AdminClient, inspect.isfunction))
    public = {name for name in methods if not name.startswith("_")}
    assert len(public) > 60
    assert {name for name in public if not hasattr(methods[name], "__wrapped__")} == {
        "close",  # of the context: it raises nothing
        "verify_transaction_buffer",
    }


def test_a_closed_client_says_so() -> None:
    component = _component()
    component._node = None
    with pytest.raises(exceptions.AlreadyClosed):
        component._topic("orders", Deadline.after(1))
