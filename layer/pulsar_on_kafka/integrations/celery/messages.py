"""kombu's messages as messages of the SDK: the body is the payload, everything else one property. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from kombu.utils.json import dumps, loads

_PROPERTY: Final = "kombu"
_PRIORITY: Final = "-priority-"
BINDINGS_TOPIC: Final = "kombu.bindings"
"""The topic whose properties are the bindings of a namespace."""
_EXCHANGE: Final = "kombu.exchange."


def local_name(name: str) -> str:
    """The part of a topic's name that stands for a queue's or an exchange's name, which may contain slashes."""
    return name.replace("%", "%25").replace("/", "%2F")


def queue_topic(namespace: str, queue: str, step: int = 0) -> str:
    """The topic of a queue, or of one of its priorities."""
    suffix = f"{_PRIORITY}{step}" if step else ""
    return f"persistent://{namespace}/{local_name(queue)}{suffix}"


def exchange_topic(namespace: str, exchange: str) -> str:
    """The topic of an exchange's messages for queues that end with their consumers, and for those of a fanout."""
    return f"persistent://{namespace}/{_EXCHANGE}{local_name(exchange)}"


def step_of(message: Mapping[str, Any], steps: Sequence[int]) -> int:
    """The highest of the ascending steps that is not above the message's priority (higher is more urgent)."""
    try:
        priority = int(message["properties"].get("priority") or 0)
    except (TypeError, ValueError):
        priority = 0
    return max((step for step in steps if step <= priority), default=0)


def encode(message: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Payload and properties of kombu's message."""
    body = message["body"]
    payload = body.encode() if isinstance(body, str) else bytes(body or b"")
    return payload, {_PROPERTY: dumps({name: value for name, value in message.items() if name != "body"})}


def decode(payload: bytes, properties: Mapping[str, str]) -> dict[str, Any]:
    """kombu's message; one of another program has its payload as a body of unknown type."""
    try:
        rest = cast("dict[str, Any]", loads(properties[_PROPERTY]))
    except (KeyError, ValueError):
        info = {"exchange": "", "routing_key": ""}
        rest = {
            "content-type": "application/data", "content-encoding": "binary", "headers": dict(properties),
            "properties": {"delivery_info": info, "body_encoding": None},
        }  # fmt: skip
    return {**rest, "body": payload}


def deliver_at_ms(message: Mapping[str, Any]) -> int | None:
    """The time of delivery in Unix milliseconds, from Celery's header `eta`; None: at once.

    A time without a zone is left to the worker, which knows the zone of its application.
    """
    eta = (message.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return None
    try:
        time = datetime.fromisoformat(eta.replace("Z", "+00:00"))
    except ValueError:
        return None
    return None if time.tzinfo is None else int(time.timestamp() * 1000)


def time_to_live_ms(message: Mapping[str, Any], of_queue_ms: int | None) -> int | None:
    """The time to live, in milliseconds from its publication: the shorter of the message's own (property `expiration`)
    and that of its queue; None without both."""
    own = message["properties"].get("expiration")
    return min((int(ttl) for ttl in (own, of_queue_ms) if ttl is not None), default=None)


def routing_key(message: Mapping[str, Any]) -> str:
    """The key with which the message was published."""
    return str((message["properties"].get("delivery_info") or {}).get("routing_key") or "")


def is_transient(message: Mapping[str, Any]) -> bool:
    """Whether the message's delivery mode is 1: a publish need not wait for it."""
    return (message["properties"] or {}).get("delivery_mode") in (1, "1", "transient")
