"""A JSON record is an object with a format number `v`, whose other members are the fields of a frozen dataclass.

    {"v":1,"tenant":"acme","cluster":"west","state":"ACTIVE","epoch":3,"target":""}
    {"v":1,"op":"UPDATE","by":3,"status":"COMMITTING"}          a tag names one of several kinds

JSON, because people read them with Kafka's own tools. The types of the fields decide the reading: an unknown member is
ignored at every depth, one whose field has a default may be missing, and any other missing or mistyped one is corrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.codecs.formats import expect_format

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number, an offset or a Unix time in ms: 0 to 2^63 - 1."""
FromMinusOne: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A foreign number is kept unchanged."""

_BRIEF: Final = 200

T = TypeVar("T")


def _plain(value: object) -> object:
    if isinstance(value, str):  # a subclass of it
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} {value!r:.60}")


_ENCODER: Final = msgspec.json.Encoder(order="deterministic", enc_hook=_plain)


def read_json(decoder: msgspec.json.Decoder[T], data: bytes, what: str) -> T:
    """Raises CorruptRecord: no JSON, or not of the decoder's type; names what was expected, and where."""
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{what} {data[:_BRIEF]!r} cannot be read: {error}") from error


class JsonRecords(Generic[T]):
    """The codec knows `kinds` by the words of the member `tag`; `what` they are called in errors.

    Raises at `encode`:
        MappingError: above `limit_bytes`, text that is no Unicode, or what JSON cannot hold.
    Raises at `decode`:
        NewerFormat, CorruptRecord.
    """

    def __init__(
        self, what: str, kinds: Mapping[str, type[T]], *, version: int = 1, tag: str = "", limit_bytes: int = 0
    ) -> None:
        self._what = what
        self._tag = tag
        self._words = {kind: word for word, kind in kinds.items()}
        self._decoders = {word: msgspec.json.Decoder(kind) for word, kind in kinds.items()}
        head: list[tuple[str, Any, Any]] = [("v", Int64, 0), *([(tag, str, "")] if tag else [])]
        self._head: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct("Head", head))
        self._version = version
        self._limit_bytes = limit_bytes

    def encode(self, value: T, **more: object) -> bytes:
        """Encodes with `more` members before its own."""
        head: dict[str, object] = {"v": self._version, **more}
        if self._tag:
            head[self._tag] = self._words[type(value)]
        try:
            members = _ENCODER.encode(value)[1:]
        except (TypeError, ValueError) as error:
            raise MappingError(f"{self._what} {value!r:.200} cannot be written: {error}") from error
        data = msgspec.json.encode(head)[:-1] + (b"," if len(members) > 1 else b"") + members
        if 0 < self._limit_bytes < len(data):
            what = f"{self._what} {self._words[type(value)]}"
            raise MappingError(f"{what} takes {len(data)} bytes, at most {self._limit_bytes} can be kept")
        return data

    def decode(self, data: bytes) -> T:
        head = read_json(self._head, data, self._what)
        expect_format(head.v, self._version, self._what)
        word = getattr(head, self._tag) if self._tag else ""
        decoder = self._decoders.get(word)
        if decoder is None:
            legal = ", ".join(self._decoders)
            raise CorruptRecord(f"{self._what} has {self._tag} {word!r:.40}, expected one of {legal}")
        return read_json(decoder, data, self._what)

    @property
    def both(self) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
        """`encode` and `decode`."""
        return self.encode, self.decode


def json_record(what: str, kind: type[T], *, version: int = 1) -> JsonRecords[T]:
    """The codec of one kind, without a tag."""
    return JsonRecords(what, {"": kind}, version=version)
