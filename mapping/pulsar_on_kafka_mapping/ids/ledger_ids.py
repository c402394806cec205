"""Ledgers are fixed ranges of a partition's offsets, and ids name them.

    ledger id  =  0 | incarnation, 27 bits | partition, 13 bits | range, 23 bits
    range = offset div entries per ledger        entry id = offset mod entries per ledger

Within a partition ledger ids, then entry ids, order as offsets do. Decision: mapping/decisions/0002.

Gateways put the generation of a tenant into the highest 7 bits of the incarnation: how often the tenant has moved
between clusters. Official clients drop messages whose ids are not above the last one that they acknowledged
cumulatively, and ids of the next cluster would often be below. An id counts the same with any generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.errors import FieldExhausted, ForeignLedger, InvalidMessageId, MappingError

INCARNATION_BITS: Final = 27
PARTITION_BITS: Final = 13
RANGE_BITS: Final = 23
MAX_INCARNATION: Final = 2**INCARNATION_BITS - 1
MAX_PARTITION: Final = 2**PARTITION_BITS - 1
MAX_RANGE: Final = 2**RANGE_BITS - 1
GENERATION_BITS: Final = 7
MAX_GENERATION: Final = 2**GENERATION_BITS - 1
DEFAULT_ENTRIES_PER_LEDGER: Final = 50_000
MAX_ENTRIES_PER_LEDGER: Final = 4_194_304

_INCARNATION_SHIFT: Final = PARTITION_BITS + RANGE_BITS
_GENERATION_SHIFT: Final = INCARNATION_BITS - GENERATION_BITS + _INCARNATION_SHIFT
_WITHOUT_GENERATION: Final = 2**_GENERATION_SHIFT - 1


class LedgerIdFields(NamedTuple):
    """The fields of a ledger id."""

    incarnation: int
    partition: int
    ledger_index: int


@dataclass(frozen=True, slots=True)
class LedgerLayout:
    """A layout divides one life of a topic into ledgers.

    A non-partitioned topic has `partition` 0 throughout (its message ids show -1; that is the caller's concern).

    Args:
        incarnation: which life of which topic, 0 to 134,217,727; see `incarnation_of`.
        entries_per_ledger: 1 to 4,194,304.
        generation: 0 to 127, in the ids that this layout makes. See `in_generation`.
    Raises:
        FieldExhausted: the incarnation does not fit.
        MappingError: either is out of its range otherwise.
    """

    incarnation: int
    entries_per_ledger: int = DEFAULT_ENTRIES_PER_LEDGER
    generation: int = 0
    _base: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.incarnation > MAX_INCARNATION:
            raise FieldExhausted(f"incarnation is {self.incarnation}, expected at most {MAX_INCARNATION}")
        if self.incarnation < 0:
            raise MappingError(f"incarnation is {self.incarnation}, expected 0 to {MAX_INCARNATION}")
        if not 1 <= self.entries_per_ledger <= MAX_ENTRIES_PER_LEDGER:
            raise MappingError(
                f"entries per ledger is {self.entries_per_ledger}, expected 1 to {MAX_ENTRIES_PER_LEDGER}"
            )
        base = self.incarnation << _INCARNATION_SHIFT | self.generation << _GENERATION_SHIFT
        object.__setattr__(self, "_base", base)

    def in_generation(self, generation: int) -> LedgerLayout:
        """The layout whose ids have this generation, 127 at most. An incarnation of more than 20 bits leaves no room:
        its ids have none."""
        if not generation or self.incarnation << _INCARNATION_SHIFT > _WITHOUT_GENERATION:
            return self
        return replace(self, generation=min(generation, MAX_GENERATION))

    def without_generation(self, ledger_id: int) -> int:
        """The id of one of this incarnation's ledgers without its generation; any other id unchanged."""
        plain = ledger_id & _WITHOUT_GENERATION
        return plain if plain >> _INCARNATION_SHIFT == self.incarnation else ledger_id

    def position(self, partition: int, kafka_offset: int) -> tuple[int, int]:
        """(ledger id, entry id) of the record at `kafka_offset`.

        Raises:
            FieldExhausted: partition above 8,191, or offset beyond the last ledger (index 8,388,607).
            InvalidMessageId: one of them is negative.
        """
        size = self.entries_per_ledger
        index = kafka_offset // size
        if partition >> PARTITION_BITS or index >> RANGE_BITS:  # negative numbers shift to -1
            raise _out_of_range(partition, index, f"offset {kafka_offset}")
        return self._base | partition << RANGE_BITS | index, kafka_offset % size

    def ledger_id(self, partition: int, index: int) -> int:
        """Id of the ledger number `index` of a partition. Raises as `position`."""
        if partition >> PARTITION_BITS or index >> RANGE_BITS:
            raise _out_of_range(partition, index, f"ledger index {index}")
        return self._base | partition << RANGE_BITS | index

    def kafka_offset(self, partition: int, ledger_id: int, entry_id: int) -> int:
        """The offset of an entry; the inverse of `position`.

        Raises:
            ForeignLedger: the ledger is not one of this partition in this life of the topic.
            InvalidMessageId: `entry_id` is not 0 to `entries_per_ledger` - 1.
        """
        own = self.incarnation << PARTITION_BITS | partition
        if ledger_id >> RANGE_BITS != own and self.without_generation(ledger_id) >> RANGE_BITS != own:
            raise ForeignLedger(
                f"ledger {_description(ledger_id)}, expected one of incarnation {self.incarnation}, "
                f"partition {partition}"
            )
        if not 0 <= entry_id < self.entries_per_ledger:
            raise InvalidMessageId(
                f"entry id is {entry_id} in ledger {ledger_id}, expected 0 to {self.entries_per_ledger - 1}"
            )
        return (ledger_id & MAX_RANGE) * self.entries_per_ledger + entry_id

    def ledger_range(self, index: int) -> tuple[int, int]:
        """(first offset, end offset) of ledger number `index`; the end is exclusive. Raises as `position`."""
        if index >> RANGE_BITS:
            raise _out_of_range(0, index, f"ledger index {index}")
        first = index * self.entries_per_ledger
        return first, first + self.entries_per_ledger


def unpack_ledger_id(ledger_id: int) -> LedgerIdFields:
    """The fields of an id: (incarnation, partition, ledger index).

    Raises:
        InvalidMessageId: it is negative or has more than 63 bits.
    """
    if ledger_id >> (INCARNATION_BITS + _INCARNATION_SHIFT):
        raise InvalidMessageId(f"ledger id is {ledger_id}, expected 0 to {2**63 - 1}")
    return LedgerIdFields(
        ledger_id >> _INCARNATION_SHIFT, ledger_id >> RANGE_BITS & MAX_PARTITION, ledger_id & MAX_RANGE
    )


def incarnation_of(creation_offset: int, state_partition: int, state_partitions: int) -> int:
    """The incarnation of a topic whose winning creation record lies at that place of the `topics` state topic.

    Unique without a counter, because no two records share a place and the number of partitions never changes.

    Raises:
        FieldExhausted: the result has more than 27 bits; no further topic can be created in this cluster.
        MappingError: the place does not exist.
    """
    if creation_offset < 0 or not 0 <= state_partition < state_partitions:
        raise MappingError(
            f"creation record at offset {creation_offset} of partition {state_partition} of {state_partitions}, "
            f"expected an offset of 0 or more and a partition below their number"
        )
    incarnation = creation_offset * state_partitions + state_partition
    if incarnation > MAX_INCARNATION:
        raise FieldExhausted(
            f"creation record at offset {creation_offset} of partition {state_partition} gives incarnation "
            f"{incarnation}, expected at most {MAX_INCARNATION}"
        )
    return incarnation


def _out_of_range(partition: int, index: int, what: str) -> MappingError:
    if partition < 0 or index < 0:
        return InvalidMessageId(f"{what} of partition {partition}, expected both to be 0 or more")
    return FieldExhausted(
        f"{what} of partition {partition} is ledger {index}, expected partition at most {MAX_PARTITION} and ledger at "
        f"most {MAX_RANGE}"
    )


def _description(ledger_id: int) -> str:
    if ledger_id >> 63:
        return f"{ledger_id} is no id of this product"
    fields = unpack_ledger_id(ledger_id)
    return f"{ledger_id} is of incarnation {fields.incarnation}, partition {fields.partition}"
