"""Streams alone have these options, which are checked before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.client.values.texts import parse_duration
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import (
    READ_NAMES,
    STREAM_NAMES,
    ReadOptions,
    flag,
    parse_options,
    plain_name,
    whole_number,
)

DEFAULT_MAX_DELAY_S: Final = 900.0
"""Source: KafkaSourceProvider.DEFAULT_MAX_TRIGGER_DELAY, 15 minutes."""
_REFUSED: Final = {
    "endingoffsets": "a stream has no end",
    "endingtime": "a stream has no end",
    "topicspattern": "a stream reads the topics that it names: give topic or topics",
}
_WITH_SUBSCRIPTION: Final = {
    "startingoffsets": "the subscription determines the beginning of a stream; seek it",
    "startingtime": "the subscription determines the beginning of a stream; seek it",
}
_SUGGESTED: Final = {plain: name for plain, name in {**READ_NAMES, **STREAM_NAMES}.items() if plain not in _REFUSED}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a checked stream.

    Attributes:
        max_entries: the limit of one micro-batch, over all partitions; a batch entry counts once. None: no limit.
        min_entries: a micro-batch waits for so many entries, over all partitions. None: for one.
        max_delay_s: the longest wait for `min_entries`, from the end of one micro-batch's plan to the next one's.
        max_bytes: the limit of one micro-batch, by the sizes of a sample of its records.
        acknowledge: whether delivered messages are acknowledged, once `fn` returned. Requires a subscription.
        redelivery_delay_s: the delay until messages that `fn` refused are redelivered.
        ack_timeout_s: the time-out until one batch's acknowledgements are durable.
    """

    read: ReadOptions
    max_entries: int | None = None
    min_entries: int | None = None
    max_delay_s: float = DEFAULT_MAX_DELAY_S
    max_bytes: int | None = None
    acknowledge: bool = True
    redelivery_delay_s: float = 60.0
    ack_timeout_s: float = 120.0


def parse_stream_options(given: Mapping[str, Any], also: Mapping[str, str] | None = None) -> StreamOptions:
    """The options of a stream. `also`: further names, by plain name, that may be meant by an unknown one.

    Raises:
        InvalidReadOption: names the option and the expectation.
    """
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in given.items():
        plain = plain_name(name)
        if value is None:
            continue
        if plain in _REFUSED:
            raise InvalidReadOption(f"option {name} is given: {_REFUSED[plain]}")
        if plain in STREAM_NAMES:
            own[plain] = value
        else:
            rest[name] = value
    read = parse_options(rest, {**_SUGGESTED, **(also or {})})
    if read.subscription is not None:
        for name in rest:
            if plain_name(name) in _WITH_SUBSCRIPTION:
                raise InvalidReadOption(f"option {name} is given: {_WITH_SUBSCRIPTION[plain_name(name)]}")
    most, least = _number(own, "maxoffsetspertrigger"), _number(own, "minoffsetspertrigger")
    if most is not None and least is not None and least > most:
        raise InvalidReadOption(f"minOffsetsPerTrigger is {least}, expected at most maxOffsetsPerTrigger, {most}")
    acknowledge = flag("acknowledge", own.get("acknowledge", True))
    return StreamOptions(
        read,
        most,
        least,
        _delay_s(own),
        _number(own, "maxbytespertrigger"),
        acknowledge and read.subscription is not None,
        whole_number("negativeAckRedeliveryDelayMs", own.get("negativeackredeliverydelayms", 60_000), 0) / 1000,
        whole_number("ackTimeoutSeconds", own.get("acktimeoutseconds", 120), 1),
    )


def _number(own: Mapping[str, Any], plain: str) -> int | None:
    return whole_number(STREAM_NAMES[plain], own[plain], 1) if plain in own else None


def _delay_s(own: Mapping[str, Any]) -> float:
    """The delay in seconds, of a number of ms or a duration as `30s` and `15m`."""
    given = own.get("maxtriggerdelay")
    if given is None:
        return DEFAULT_MAX_DELAY_S
    if "minoffsetspertrigger" not in own:
        raise InvalidReadOption("maxTriggerDelay is given without minOffsetsPerTrigger, for which it limits the wait")
    text = str(given).strip()
    try:
        return parse_duration(f"{text}ms" if text.isdigit() else text) / 1000
    except ValueError:
        raise InvalidReadOption(
            f"maxTriggerDelay is {given!r:.80}, expected a duration such as 30s or 15m, or a number of ms"
        ) from None
