"""Streams alone have these options, which are checked before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import ReadOptions, flag, parse_options, plain_name, whole_number

_OWN: Final = {
    "maxoffsetspertrigger": "maxOffsetsPerTrigger",
    "maxbytespertrigger": "maxBytesPerTrigger",
    "acknowledge": "acknowledge",
    "negativeackredeliverydelayms": "negativeAckRedeliveryDelayMs",
    "acktimeoutseconds": "ackTimeoutSeconds",
}
_REFUSED: Final = {
    "endingoffsets": "a stream has no end",
    "endingtime": "a stream has no end",
    "topicspattern": "a stream reads the topics that it names: give topic or topics",
}
_WITH_SUBSCRIPTION: Final = {
    "startingoffsets": "the subscription determines the beginning of a stream; seek it",
    "startingtime": "the subscription determines the beginning of a stream; seek it",
}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a checked stream.

    Attributes:
        max_entries: the limit of one micro-batch, over all partitions; a batch entry counts once. None: no limit.
        max_bytes: the limit of one micro-batch, by the sizes of a sample of its records.
        acknowledge: whether delivered messages are acknowledged, once `fn` returned. Requires a subscription.
        redelivery_delay_s: the delay until messages that `fn` refused are redelivered.
        ack_timeout_s: the time-out until one batch's acknowledgements are durable.
    """

    read: ReadOptions
    max_entries: int | None = None
    max_bytes: int | None = None
    acknowledge: bool = True
    redelivery_delay_s: float = 60.0
    ack_timeout_s: float = 120.0


def parse_stream_options(given: Mapping[str, Any]) -> StreamOptions:
    """Raises InvalidReadOption."""
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in given.items():
        plain = plain_name(name)
        if value is None:
            continue
        if plain in _REFUSED:
            raise InvalidReadOption(f"option {name} is given: {_REFUSED[plain]}")
        if plain in _OWN:
            own[plain] = value
        else:
            rest[name] = value
    read = parse_options(rest)
    if read.subscription is not None:
        for name in rest:
            if plain_name(name) in _WITH_SUBSCRIPTION:
                raise InvalidReadOption(f"option {name} is given: {_WITH_SUBSCRIPTION[plain_name(name)]}")
    acknowledge = flag("acknowledge", own.get("acknowledge", True))
    return StreamOptions(
        read,
        _number(own, "maxoffsetspertrigger", 1),
        _number(own, "maxbytespertrigger", 1),
        acknowledge and read.subscription is not None,
        whole_number("negativeAckRedeliveryDelayMs", own.get("negativeackredeliverydelayms", 60_000), 0) / 1000,
        whole_number("ackTimeoutSeconds", own.get("acktimeoutseconds", 120), 1),
    )


def _number(own: Mapping[str, Any], plain: str, least: int) -> int | None:
    return whole_number(_OWN[plain], own[plain], least) if plain in own else None
