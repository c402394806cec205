"""The options of a read bear pulsar-spark's names and are checked before anything is touched. Pure.

Upper and lower case, dots and underscores do not count: `service.url`, `serviceUrl` and `service_url` are one option.
Source of names and meanings: pulsar-spark's README (Configurations).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka_mapping.errors import InvalidInstanceName
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.private_key_file import PrivateKeyFile

ReadAs = SchemaInfo | int | str
"""The schema of a reading: one of the caller's, a version's number, `latest`, or `bytes`: payloads unchanged."""

FAILFAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"
MODES: Final = (FAILFAST, PERMISSIVE)
"""The effect of a message that cannot be decoded: the query ends with an error that names it, or gives nulls."""

FAIL: Final = "FAIL"
DISCARD: Final = "DISCARD"
CONSUME: Final = "CONSUME"
CRYPTO_FAILURE_ACTIONS: Final = (FAIL, DISCARD, CONSUME)
"""The effect of an encrypted message that cannot be decrypted: the query ends with an error that names it, skips it, or
returns it unchanged. Source: `pulsar.ConsumerCryptoFailureAction`."""

KEPT_COLUMNS: Final = ("value", "__key", "__topic", "__messageId", "__publishTime")
"""The columns of pulsar-spark that need no headers."""
HEADER_COLUMNS: Final = ("__eventTime", "__messageProperties")
"""And those that do."""
PLACE_COLUMNS: Final = ("__partition", "__offset", "__batchIndex")
EXTRA_COLUMNS: Final = ("__orderingKey", *PLACE_COLUMNS, "__producerName", "__sequenceId", "__schemaVersion")
TEXT_COLUMNS: Final = ("__key", "__orderingKey", "__messageId")
"""The columns that `textColumns` makes strings: keys in UTF-8, ids as `message_id_text` and the size of a batch."""
ALL_COLUMNS: Final = (*KEPT_COLUMNS, *HEADER_COLUMNS, *EXTRA_COLUMNS)
CORRUPT: Final = "__corruptRecord"
"""The payload of a message that is no value of the schema, with `PERMISSIVE`; null for all others. Only by name."""

_REFUSED: Final = {
    "adminurl": "is not needed: there is no admin service",
    "subscriptionprefix": "has no use: a read makes no subscription; name one with predefinedSubscription, or none",
    "waitingfornonexistedtopic": "is not supported: the topic has to be there",
    "readcompacted": "is not supported: a read gives every message; keep of each __key the row that is last by "
    "__offset and __batchIndex, unless its value is empty",
    "isolationlevel": "is not the reader's to choose: open and aborted transactions are never shown",
}
_PREFIXES: Final = {"kafka.": "kafka", "driver.": "driver"}
_FOREIGN: Final = ("pulsar.client.", "pulsar.admin.", "pulsar.reader.", "pulsar.producer.", "pulsar.consumer.")


@dataclass(frozen=True, slots=True)
class Bound:
    """The beginning or the end of a reading.

    Attributes:
        whole: for every partition without an entry in `places`: `earliest`, `latest`, or a Unix time in ms.
        places: by name of a topic or of one of its partitions: a serialized message id, or a Unix time in ms.
    """

    whole: str | int
    places: Mapping[str, bytes | int] = field(default_factory=dict)


EARLIEST: Final = Bound("earliest")
LATEST: Final = Bound("latest")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a checked read. Exactly one of `topics` and `pattern` is set.

    Attributes:
        subscription: the one whose acknowledgements filter; None: only transactions and void records do.
        columns: in order.
        text_columns: whether `TEXT_COLUMNS` are strings, not binary.
        plain: by the user, every record is one plain message, so that no headers are needed.
        chunked: whether chunks of messages are searched; None: where a producer recorded that there may be any.
        pulsar_entries: whether some records may have a Pulsar client's batching or compression; None: likewise.
        crypto_key_reader: decrypts messages; used on the driver only, by the data source on executors.
        kafka: options of the Kafka client on executors (Java's names, without `kafka.`); may hold passwords.
        driver: options of the Kafka client on the driver (librdkafka's names); may hold passwords.
        spark: options passed to Spark's Kafka source unchanged.
        instance: the owner of the state; None: the environment's POK_INSTANCE.
        map_url: the map of tenants in which `service_url` was found (`on_cluster`); '' without a map.
        cluster: the cluster's name there.
    """

    service_url: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    subscription: str | None = None
    starting: Bound = EARLIEST
    ending: Bound = LATEST
    fail_on_data_loss: bool = True
    allow_different_topic_schemas: bool = False
    schema: ReadAs = "latest"
    mode: str = FAILFAST
    columns: tuple[str, ...] = KEPT_COLUMNS
    text_columns: bool = False
    plain: bool = False
    chunked: bool | None = None
    pulsar_entries: bool | None = None
    crypto_key_reader: CryptoKeyReader | None = field(default=None, repr=False)
    crypto_failure_action: str = FAIL
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: Mapping[str, str] = field(default_factory=dict)
    instance: str | None = None
    map_url: str = ""
    cluster: str = ""


def parse_options(given: Mapping[str, Any], suggested: Mapping[str, str] | None = None) -> ReadOptions:
    """The read of these options. Values may be of their own types or text; None stands for "not given".

    Args:
        suggested: the names, by plain name, of which the nearest is named beside an unknown one; None: those of reads.
    Raises:
        InvalidReadOption: names the option and the expectation.
    """
    known, raw = _sorted_out(given, READ_NAMES if suggested is None else suggested)
    names = [name for name in ("topic", "topics", "topicspattern") if name in known]
    if not names:
        raise InvalidReadOption("no topic is given: expected one of topic, topics, topicsPattern")
    if len(names) > 1:
        raise InvalidReadOption(f"{' and '.join(READ_NAMES[n] for n in names)} are given, expected one of them")
    if "serviceurl" not in known:
        raise InvalidReadOption("no broker is given: expected service.url, such as kafka://localhost:9092")
    return ReadOptions(
        service_url=str(known["serviceurl"]),
        topics=_topics(known),
        pattern=_name_or_none(known, "topicspattern"),
        subscription=_name_or_none(known, "predefinedsubscription"),
        starting=_bound(known, "starting", EARLIEST),
        ending=_bound(known, "ending", LATEST),
        fail_on_data_loss=flag("failOnDataLoss", known.get("failondataloss", True)),
        allow_different_topic_schemas=flag(
            "allowDifferentTopicSchemas", known.get("allowdifferenttopicschemas", False)
        ),
        schema=_schema(known.get("schema", "latest")),
        mode=_one_of(MODES, "mode", known.get("mode", FAILFAST)),
        columns=_with_decoding(_columns(known), known),
        text_columns=flag("textColumns", known.get("textcolumns", False)),
        plain=_plain_records(known),
        chunked=_if_reported(known, "chunkedMessages"),
        pulsar_entries=_if_reported(known, "pulsarEntries"),
        crypto_key_reader=_key_reader(known),
        crypto_failure_action=_one_of(
            CRYPTO_FAILURE_ACTIONS, "cryptoFailureAction", known.get("cryptofailureaction", FAIL)
        ),
        kafka=raw["kafka"],
        driver=raw["driver"],
        spark={
            name: str(whole_number(READ_NAMES[plain], known[plain], 1))
            for plain, name in _HANDED_ON.items()
            if plain in known
        },
        instance=instance_name(known["instance"]) if "instance" in known else None,
    )


def _sorted_out(
    given: Mapping[str, Any], suggested: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """The options by their plain names, and those with a client's prefix."""
    known: dict[str, Any] = {}
    raw: dict[str, dict[str, str]] = {"kafka": {}, "driver": {}}
    for name, value in given.items():
        if value is None:
            continue
        prefix = next((prefix for prefix in _PREFIXES if name.lower().startswith(prefix)), None)
        if prefix is not None:
            raw[_PREFIXES[prefix]][name[len(prefix) :]] = str(value)
            continue
        plain = plain_name(name)
        if name.lower().startswith(_FOREIGN):
            raise InvalidReadOption(
                f"option {name} configures a Pulsar client; expected kafka.* (the Kafka client of the executors) and "
                "driver.* (librdkafka's of the driver)"
            )
        if plain in _REFUSED:
            raise InvalidReadOption(f"option {name} {_REFUSED[plain]}")
        if plain in STREAM_NAMES:
            raise InvalidReadOption(f"option {name} belongs to streams")
        if plain not in READ_NAMES:
            raise InvalidReadOption(f"option {name} is unknown, {nearest(plain, suggested)}")
        plain = _SAME.get(plain, plain)
        if plain in known and known[plain] != value:
            raise InvalidReadOption(f"option {READ_NAMES[plain]} is given twice: {known[plain]!r} and {value!r}")
        known[plain] = value
    return known, raw


def plain_name(name: str) -> str:
    """An option's name as it counts: in lower case, without dots and underscores."""
    return re.sub(r"[._]", "", name).lower()


def nearest(name: str, known: Mapping[str, str]) -> str:
    """A suggestion for a name that is not among the `known` ones, which are spelt as their values."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {known[near[0]]}?" if near else f"expected one of {', '.join(known.values())}"


READ_NAMES: Final = {
    plain_name(name): name
    for name in (
        "service.url", "topic", "topics", "topicsPattern", "predefinedSubscription", "subscription", "startingOffsets",
        "endingOffsets", "startingTime", "endingTime", "failOnDataLoss", "allowDifferentTopicSchemas", "columns",
        "includeHeaders", "textColumns", "minPartitions", "pollTimeoutMs", "schema", "mode", "chunkedMessages",
        "pulsarEntries", "cryptoKeyReader", "cryptoPrivateKeyPath", "cryptoFailureAction", "instance",
    )
}  # fmt: skip
"""The options of reads by plain name, as users spell them."""
STREAM_NAMES: Final = {
    plain_name(name): name
    for name in (
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "acknowledge",
        "negativeAckRedeliveryDelayMs", "ackTimeoutSeconds",
    )
}  # fmt: skip
"""The options that streams alone have."""
_SAME: Final = {"subscription": "predefinedsubscription"}
_HANDED_ON: Final = {"minpartitions": "minPartitions", "polltimeoutms": "kafkaConsumer.pollTimeoutMs"}


def _topics(known: Mapping[str, Any]) -> tuple[str, ...]:
    if "topic" in known:
        return (_text("topic", known["topic"]),)
    if "topics" not in known:
        return ()
    given = known["topics"]
    names = _listed(given)
    if not names or "" in names:
        raise InvalidReadOption(f"topics is {given!r}, expected names between commas")
    return _each_once("topics", given, names)


def _listed(given: str | Iterable[object]) -> list[str]:
    return [str(name).strip() for name in (given.split(",") if isinstance(given, str) else given)]


def _each_once(option: str, given: object, names: Sequence[str]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise InvalidReadOption(f"{option} is {given!r}, expected each name once")
    return tuple(names)


def _name_or_none(known: Mapping[str, Any], plain: str) -> str | None:
    return _text(READ_NAMES[plain], known[plain]) if plain in known else None


def instance_name(given: object, refusal: type[Exception] = InvalidReadOption) -> str:
    """Raises `refusal`: no instance can have this name."""
    try:
        return Instance(str(given)).name
    except InvalidInstanceName as refused:
        raise refusal(str(refused)) from refused


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidReadOption(f"{name} is {value!r:.80}, expected a name")
    return value.strip()


def flag(name: str, value: object, refusal: type[Exception] = InvalidReadOption) -> bool:
    """Raises `refusal`: neither true nor false."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise refusal(f"{name} is {value!r:.80}, expected true or false")
    return text == "true"


def whole_number(
    name: str, value: object, least: int, most: int | None = None, refusal: type[Exception] = InvalidReadOption
) -> int:
    """Raises `refusal`: no decimal number between these, both included."""
    number = int(str(value)) if not isinstance(value, bool) and re.fullmatch(r"[0-9]{1,19}", str(value)) else -1
    if number < least or (most is not None and number > most):
        expected = f"a number of {least} or more" if most is None else f"{least} to {most}"
        raise refusal(f"{name} is {value!r:.80}, expected {expected}")
    return number


def _schema(value: object) -> ReadAs:
    if isinstance(value, SchemaInfo):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.lower() in ("latest", "bytes"):
        return value.lower()
    if isinstance(value, str) and value.isdigit():
        return int(value)
    raise InvalidReadOption(f"schema is {value!r:.80}, expected latest, bytes, a version's number, or a SchemaInfo")


def _one_of(choices: Sequence[str], option: str, value: object) -> str:
    name = str(getattr(value, "name", value)).upper()
    if name not in choices:
        raise InvalidReadOption(f"{option} is {value!r:.80}, expected {' or '.join(choices)}")
    return name


def _if_reported(known: Mapping[str, Any], option: str) -> bool | None:
    """None: as it is on record."""
    given = known.get(plain_name(option), "auto")
    required = None if str(given).lower() == "auto" else flag(option, given)
    if required and _plain_records(known):
        raise InvalidReadOption(
            f"{option} is true and includeHeaders is false: headers are needed to find these messages"
        )
    return required


def _key_reader(known: Mapping[str, Any]) -> CryptoKeyReader | None:
    given = known.get("cryptokeyreader")
    if given is not None and not callable(getattr(given, "get_private_key", None)):
        raise InvalidReadOption(
            f"cryptoKeyReader is {type(given).__name__}, expected a CryptoKeyReader; cryptoPrivateKeyPath names a file"
        )
    if "cryptoprivatekeypath" not in known:
        return given
    if given is not None:
        raise InvalidReadOption("cryptoKeyReader and cryptoPrivateKeyPath are given, expected one of them")
    return PrivateKeyFile(_text("cryptoPrivateKeyPath", known["cryptoprivatekeypath"]))


def _plain_records(known: Mapping[str, Any]) -> bool:
    plain = not flag("includeHeaders", known.get("includeheaders", True))
    wanting = [name for name in _columns(known) if name not in (*KEPT_COLUMNS, *PLACE_COLUMNS, CORRUPT)]
    if plain and wanting:
        raise InvalidReadOption(f"includeHeaders is false, and the column {wanting[0]} needs headers")
    return plain


def _columns(known: Mapping[str, Any]) -> tuple[str, ...]:
    given = known.get("columns")
    with_headers = flag("includeHeaders", known.get("includeheaders", given is None))
    if given is None:
        return (*KEPT_COLUMNS, *HEADER_COLUMNS) if with_headers else KEPT_COLUMNS
    if given == "all":
        return ALL_COLUMNS
    names = _listed(given)
    by_plain = {name.lower(): name for name in (*ALL_COLUMNS, CORRUPT)}
    for name in names:
        if name.lower() not in by_plain:
            raise InvalidReadOption(f"column {name!r} is unknown, {nearest(name.lower(), by_plain)}")
    chosen = _each_once("columns", given, [by_plain[name.lower()] for name in names])
    return (*chosen, *(name for name in HEADER_COLUMNS if with_headers and name not in chosen))


def _with_decoding(columns: tuple[str, ...], known: Mapping[str, Any]) -> tuple[str, ...]:
    """Raises InvalidReadOption: the column of undecodable payloads is named where nothing is decoded leniently."""
    if CORRUPT in columns:
        if "value" not in columns:
            raise InvalidReadOption(f"column {CORRUPT} is of the value's payloads: expected value among the columns")
        if _one_of(MODES, "mode", known.get("mode", FAILFAST)) != PERMISSIVE:
            raise InvalidReadOption(f"column {CORRUPT} needs mode {PERMISSIVE}: with {FAILFAST} the query ends instead")
    return columns


def _bound(known: Mapping[str, Any], which: str, otherwise: Bound) -> Bound:
    offsets, time = known.get(f"{which}offsets"), known.get(f"{which}time")
    if offsets is not None and time is not None:
        raise InvalidReadOption(f"{which}Offsets and {which}Time are given, expected one of them")
    if time is not None:
        name = f"{which}Time"
        places = _by_topic(name, time, lambda one: _time(name, one))
        return Bound(_time(name, time)) if places is None else Bound(otherwise.whole, places)
    if offsets is None:
        return otherwise
    name = f"{which}Offsets"
    if isinstance(offsets, str) and offsets.lower() in ("earliest", "latest"):
        if offsets.lower() != otherwise.whole:
            raise InvalidReadOption(f"{name} is {offsets!r}: such a read would have no message")
        return otherwise
    places = _by_topic(name, offsets, lambda one: _message_id(name, one))
    if places is None:
        raise InvalidReadOption(
            f"{name} is {offsets!r:.80}, expected {otherwise.whole}, or message ids by topic: "
            '{"persistent://public/default/orders-partition-0": [8, 11, 16, 101]}'
        )
    return Bound(otherwise.whole, places)


def _by_topic(name: str, given: object, read: Callable[[object], bytes | int]) -> dict[str, bytes | int] | None:
    """The values of each topic; None when `given` is neither a mapping nor JSON of one."""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InvalidReadOption(f"{name} is {given!r:.80}, which is no JSON: {error}") from error
    if not isinstance(given, Mapping):
        return None
    return {_text(f"a topic of {name}", topic): read(one) for topic, one in given.items()}


def _time(name: str, given: object) -> int:
    """Unix time in ms."""
    if isinstance(given, datetime) and given.tzinfo is not None:
        return round(given.timestamp() * 1000)
    text = str(given)
    if isinstance(given, bool) or not text.isdigit():
        raise InvalidReadOption(
            f"{name} is {given!r:.80}, expected a Unix time in ms, a datetime with its time zone, or times by topic"
        )
    return int(text)


def _message_id(name: str, given: object) -> bytes:
    """A serialized message id: bytes, an id of the SDK, or numbers of -128 to 255 as JSON has them."""
    serialize = getattr(given, "serialize", None)
    if serialize is not None:
        return bytes(serialize())
    if isinstance(given, (bytes, bytearray)):
        return bytes(given)
    if isinstance(given, (list, tuple)) and all(type(one) is int and -128 <= one <= 255 for one in given):
        return bytes(one & 0xFF for one in given)
    raise InvalidReadOption(f"{name} holds {given!r:.80}, expected the bytes of a message id")
