"""Buffers and pending acks under random histories: pauses, crashes, two owners of one cursor, coordinators that do
things twice and late, appends that fail or arrive later, compaction.

Every client consumes, writes an output for each input that it took, and acknowledges the inputs, in one transaction.
So outputs that readers see and inputs that are acknowledged must be the same, each once. `make soak` runs 3,000.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import AppendFailed, AppendOutcomeUnknown, Fenced
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.transactions.buffer.buffer_machine import TransactionBuffer
from pulsar_on_kafka.broker.transactions.buffer.cleaning import BufferCleaning
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import MetRecord
from pulsar_on_kafka.broker.transactions.buffer.verify import compare, rebuild
from pulsar_on_kafka.broker.transactions.pending_acks.log import PendingAckLog
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAckAnswer, PendingAcks, State
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.state.state_keys import LowWaterKey, PendingAckEndKey, TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnOutcome, encode_end
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferKind,
    OpenEntry,
    encode_low_water,
)
from tests.seeds import in_three
from tests.simulation.transaction_world import (
    ACKS,
    BUFFER,
    CURSOR,
    DATA,
    LIFE,
    OUT,
    UNITS,
    Logs,
    Request,
    Serving,
    Txn,
    Unit,
    World,
    ack_of,
    acknowledged,
    is_batch,
    met_of,
    stored,
)
from tests.simulation.turns import NEVER, Actor, Schedule

FAILURES = (AppendFailed, AppendOutcomeUnknown)


class Coordinator:
    """Carries out what was decided, as often as it likes: whoever it is, paused or not."""

    def __init__(self, world: World) -> None:
        self.world = world

    def life(self, actor: Actor) -> None:
        world, rng = self.world, self.world.rng
        logs, session = Logs(world, actor), world.name()
        cleaning = [BufferCleaning(where) for where in OUT]
        while True:
            actor.pause()
            for txn in world.txns:
                if txn.decided is None and world.clock.seconds - txn.began_s > 150:
                    world.decide(txn, commit=False)  # its time is over
            decided = [txn for txn in world.txns if txn.decided is not None]
            due = [txn for txn in decided if not txn.finished]
            try:
                if due and rng.random() < 0.8:
                    self.carry_out(rng.choice(due), logs, session)
                elif decided and rng.random() < 0.3:
                    self.carry_out(rng.choice(decided), logs, session)
                elif rng.random() < 0.5:
                    self.publish(logs, session)
                else:
                    for clean in cleaning:
                        due_now = partial(clean.due, log_start=0, now_ms=world.clock.now_ms())
                        for key in logs.entries.query(due_now, NEVER):
                            logs.buffer.append(BUFFER, 0, encode_key(key), None, NEVER)
            except FAILURES:
                continue

    def publish(self, logs: Logs, session: str) -> None:
        mark = self.world.low_water()
        if mark >= 0:
            logs.buffer.append(BUFFER, 0, encode_key(LowWaterKey(0, session)), encode_low_water(mark), NEVER)

    def carry_out(self, txn: Txn, logs: Logs, session: str) -> None:
        world, committed = self.world, bool(txn.decided)
        bounds, subscribed, sealed = dict(txn.bounds), txn.subscribed, txn.fates_known
        for number in bounds:
            logs.data.append(DATA, number, *world.marker(txn.id, committed=committed), NEVER)
        if subscribed:
            end = encode_key(PendingAckEndKey(*CURSOR, *txn.id))
            logs.acks.append(ACKS, 0, end, encode_end(TxnOutcome(committed)), NEVER)
        for number, bound in bounds.items():
            if not committed:
                end_offset = logs.data.end_offset(DATA, number, NEVER)
                offsets = BitMap64(
                    met.offset
                    for met in records(logs, number, bound, end_offset)
                    if met.txn == txn.id and not_marker(met)
                )
                entry = AbortedEntry(OUT[number].incarnation, bound, end_offset, sealed, offsets)
                logs.put(OUT[number], txn.id, entry, session)
            keys = logs.entries.query(partial(open_keys, number, txn), NEVER)
            for key in keys:
                logs.buffer.append(BUFFER, 0, encode_key(key), None, NEVER)
        txn.finished = True


def records(logs: Logs, number: int, start: int, end: int) -> list[MetRecord]:
    return [met_of(r.offset, r.value)[0] for run in logs.data.read(DATA, number, start, end, NEVER) for r in run]


def open_keys(number: int, txn: Txn, entries: BufferEntries) -> list[TransactionBufferKey]:
    return entries.keys_of(OUT[number], txn.id, BufferKind.OPEN)


def not_marker(met: MetRecord) -> bool:
    return met.ended is None


class Client:
    """Takes inputs, writes outputs, acknowledges, and commits if it knows that all of that succeeded."""

    def __init__(self, world: World) -> None:
        self.world = world

    def life(self, actor: Actor) -> None:
        world, rng = self.world, self.world.rng
        logs = Logs(world, actor)
        while True:
            actor.pause()
            desks = list(world.owners.values())
            if not desks:
                continue
            desk = rng.choice(desks)
            units = desk.take(rng)
            if not units:
                continue
            txn = world.begin()
            fine = fates_known = True
            try:
                for unit in units:
                    number = rng.randrange(len(OUT))
                    self.register(txn, number, logs)
                    if txn.decided is not None and rng.random() < 0.8:
                        break  # most clients notice
                    logs.data.append(DATA, number, *world.output(txn.id, unit), NEVER)
            except AppendFailed:
                fine = False
            except AppendOutcomeUnknown:
                fine = fates_known = False
            fine = fine and rng.random() < 0.9 and txn.decided is None and self.acknowledge(txn, units, desk, actor)
            if txn.decided is None:
                txn.fates_known = fates_known
            if not world.decide(txn, commit=fine) and not txn.subscribed:
                desk.out.difference_update(units)  # it lets go of them; else they come again by the transaction's end
                desk.available.update(units)

    def register(self, txn: Txn, number: int, logs: Logs) -> None:
        if number in txn.bounds or txn.decided is not None:
            return
        bound = logs.data.end_offset(DATA, number, NEVER)
        if txn.decided is not None:
            return
        txn.bounds[number] = bound  # ADD_PARTITION is in the coordinator's log
        entry = OpenEntry(OUT[number].incarnation, bound)
        session = self.world.name()
        for _ in range(3):
            try:
                logs.put(OUT[number], txn.id, entry, session)
            except FAILURES:
                continue
            return
        raise AppendFailed("not announced")

    def acknowledge(self, txn: Txn, units: list[Unit], desk: Serving, actor: Actor) -> bool:
        txn.subscribed = True
        request = Request(txn, units)
        desk.requests.append(request)
        for _ in range(30):
            actor.pause()
            if request.answer is not None:
                return request.answer
            if txn.decided is not None:
                return False
        return False


class Owner:
    """A process of the subscription: owns the cursor while the group says so, or until it finds out otherwise."""

    def __init__(self, world: World) -> None:
        self.world = world

    def life(self, actor: Actor) -> None:
        while True:
            actor.pause()
            try:
                self.own(actor)
            except (*FAILURES, Fenced):
                continue
            finally:
                self.world.owners.pop(self, None)

    def own(self, actor: Actor) -> None:
        world, rng = self.world, self.world.rng
        if world.owners and rng.random() < 0.7:
            return
        world.generation += 1  # the group gives it to this one now
        generation = world.generation
        logs = Logs(world, actor)
        found = world.stored
        cursor, version = found.open(), found.version + 1
        actor.pause()
        if not self.commit(generation, cursor.next_unacked, version, found):
            return
        acks = PendingAcks(CURSOR, LIFE, world.name(), version)
        logs.acks.append(ACKS, 0, *acks.take_over(), NEVER)
        low = logs.entries.query(lambda entries: entries.low_waters(), NEVER)
        logs.pending.query(lambda log: acks.replayed(log.cursor(CURSOR), low, cursor.revision), NEVER)
        desk = Serving({unit for unit in set(UNITS) - acknowledged(cursor) if not is_held(acks, unit)})
        world.owners[self] = desk
        tickets: dict[int, Request] = {}
        while acks.state is State.READY:
            self.serve(acks, cursor, desk, tickets, logs)
            if rng.random() < 0.4:
                if world.generation != generation:
                    return  # its commit is refused
                world.stored = stored(cursor, version)
                acks.saved(cursor.revision)
            if rng.random() < 0.3:
                self.clean(acks, logs)
            actor.pause()

    def commit(self, generation: int, next_unacked: int, version: int, found: object) -> bool:
        """The group's commit that names the new version; refused when somebody else has the place by now."""
        if self.world.generation != generation or self.world.stored is not found:
            return False
        before = self.world.stored
        self.world.stored = type(before)(version, next_unacked, before.deleted, before.batches)
        return True

    def serve(
        self,
        acks: PendingAcks,
        cursor: CursorState,
        desk: Serving,
        tickets: dict[int, Request],
        logs: Logs,
    ) -> None:
        for request in desk.requests:
            tickets[acks.request(request.txn.id, ack_of(request.units))] = request
        desk.requests.clear()
        decision = acks.decide(cursor)
        answers: list[PendingAckAnswer] = list(decision.answers)
        if decision.records:
            try:
                logs.acks.append_many(ACKS, 0, decision.records, NEVER)
            except FAILURES as failure:
                answers += acks.failed(failure)
        low = logs.entries.query(lambda entries: entries.low_waters(), NEVER)
        answers += logs.pending.query(lambda log: acks.read_back(log.cursor(CURSOR), low), NEVER)
        for answer in answers:
            request = tickets.pop(answer.ticket)
            request.answer = answer.failure is None
            desk.out.difference_update(request.units)
            if request.answer:
                request.txn.held.update(request.units)
            else:  # whoever got no answer lets go; what is held nevertheless comes by the transaction's end
                desk.available.update(unit for unit in request.units if self.may_deliver(acks, cursor, unit))
        for settled in acks.settle(cursor):
            again = {unit for unit in UNITS if unit[0] in settled.redeliver and unit not in desk.out}
            desk.available.update(unit for unit in again if self.may_deliver(acks, cursor, unit))
        self.nothing_is_lost(acks, cursor, desk)

    @staticmethod
    def may_deliver(acks: PendingAcks, cursor: CursorState, unit: Unit) -> bool:
        return unit not in acknowledged(cursor) and not is_held(acks, unit)

    def nothing_is_lost(self, acks: PendingAcks, cursor: CursorState, desk: Serving) -> None:
        """Every input is acknowledged, held, at hand or with a client; nothing that was committed is at hand."""
        known = acknowledged(cursor) | desk.available | desk.out
        lost = {unit for unit in UNITS if unit not in known and not is_held(acks, unit)}
        assert not lost, f"seed {self.world.seed}: {lost} of {acks.owner} would never be delivered again"
        if acks.state is State.READY:
            owner = self.world_owner()
            again = desk.available & self.world.committed_units()
            if owner == acks.owner:
                assert not again, f"seed {self.world.seed}: {again} were acknowledged in committed transactions"

    def world_owner(self) -> object:
        view = LogView(self.world.acks, ACKS, 0, PendingAckLog, self.world.clock)
        return view.query(lambda log: log.cursor(CURSOR).life(LIFE).fence.owner, NEVER)

    @staticmethod
    def clean(acks: PendingAcks, logs: Logs) -> None:
        for key in logs.pending.query(lambda log: acks.to_clean(log.cursor(CURSOR)), NEVER):
            logs.acks.append(ACKS, 0, key, None, NEVER)


def is_held(acks: PendingAcks, unit: Unit) -> bool:
    offset, index = unit
    batch = acks.held.batch(offset) if is_batch(offset) else None
    return acks.held.is_held(offset) or (batch is not None and bool(batch.acked >> index & 1))


class Reading:
    """Reads the outputs, with headers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: list[tuple[int, int, Unit]] = []

    def life(self, actor: Actor) -> None:
        logs = Logs(self.world, actor)
        machines = [TransactionBuffer(where) for where in OUT]
        positions = [0] * len(OUT)
        while True:
            actor.pause()
            for number, machine in enumerate(machines):
                positions[number] = self.read(machine, number, positions[number], logs)

    def read(self, machine: TransactionBuffer, number: int, start: int, logs: Logs) -> int:
        end = logs.data.end_offset(DATA, number, NEVER)
        run = [met_of(r.offset, r.value) for batch in logs.data.read(DATA, number, start, end, NEVER) for r in batch]
        met = [found for found, _ in run]
        unsettled = machine.unsettled(met)
        if unsettled:
            logs.entries.query(lambda found: machine.learn(unsettled, found), NEVER)
        judged = machine.judge(met, self.world.clock.now_ms())
        upto = end if judged.upto is None else judged.upto
        for found, unit in run:
            if found.offset < upto and found.ended is None and found.offset not in judged.excluded:
                txn = self.world.txns[found.txn.least_bits]
                assert txn.decided, f"seed {self.world.seed}: {found} was read, it is {txn.decided}"
                self.seen.append((number, found.offset, unit))
        return upto


class History:
    def __init__(self, seed: int, steps: int = 700) -> None:
        self.world = World(seed)
        self.steps = steps
        self.schedule = Schedule(self.world.rng, self.world.clock)
        self.readers = [Reading(self.world) for _ in range(2)]

    def run(self) -> int:
        world, rng = self.world, self.world.rng
        makers = [lambda: Coordinator(world)] * 2 + [lambda: Owner(world)] * 2 + [lambda: Client(world)] * 3
        actors = [Actor(make().life) for make in makers]
        reading = [Actor(reader.life) for reader in self.readers]
        try:
            for _ in range(self.steps):
                world.clock.seconds += 1
                draw = rng.random()
                if draw < 0.86:
                    self.schedule.step_one_of([*actors, *reading])
                elif draw < 0.95:
                    world.clean()
                elif draw < 0.98 and world.broker.waiting:
                    world.broker.execute_one()
                elif draw > 0.99:
                    place = rng.randrange(len(actors))
                    actors[place].end()
                    actors[place] = Actor(makers[place]().life)
        finally:
            for actor in [*actors, *reading]:
                actor.end()
        return self.quiet_end()

    def quiet_end(self) -> int:
        """Nothing fails any more: what was decided is carried out, and all accounts agree."""
        world = self.world
        world.broker.execute_all()
        logs = Logs(world, Actor(lambda _: None))
        logs.buffer = logs.entries._log = world.buffer  # type: ignore[assignment]
        logs.acks = logs.pending._log = world.acks  # type: ignore[assignment]
        logs.data = world.data  # type: ignore[assignment]
        coordinator = Coordinator(world)
        for txn in world.txns:
            world.decide(txn, commit=False)
            if not txn.finished:
                coordinator.carry_out(txn, logs, "last")
        coordinator.publish(logs, "last")
        acked = self.last_owner(logs)
        committed = world.committed_units()
        assert acked == committed, f"seed {world.seed}: acknowledged {acked}, committed {committed}"
        last = Reading(world)
        for number, where in enumerate(OUT):
            assert last.read(TransactionBuffer(where), number, 0, logs) == world.data.end_offset(DATA, number, NEVER)
            met = records(logs, number, 0, world.data.end_offset(DATA, number, NEVER))
            assert logs.entries.query(partial(compare, where, rebuild(met), 0), NEVER) == []
            snapshot = logs.entries.query(partial(BufferEntries.snapshot, where=where), NEVER)
            rows = [one.offset for one in met if not_marker(one) and snapshot.is_readable(one.offset, one.txn)]
            assert rows == [offset for partition, offset, _ in last.seen if partition == number]
        outputs = Counter(unit for _, _, unit in last.seen)
        assert outputs == Counter(committed), f"seed {world.seed}: outputs {outputs} are not those of {committed}"
        for reader in self.readers:
            assert set(reader.seen) <= set(last.seen)
            assert len(set(reader.seen)) == len(reader.seen), f"seed {world.seed}: something was read twice"
        return len(committed)

    def last_owner(self, logs: Logs) -> set[Unit]:
        world = self.world
        found = world.stored
        cursor = found.open()
        acks = PendingAcks(CURSOR, LIFE, "last", found.version + 1)
        world.acks.append(ACKS, 0, *acks.take_over(), NEVER)
        low = logs.entries.query(lambda entries: entries.low_waters(), NEVER)
        logs.pending.query(lambda log: acks.replayed(log.cursor(CURSOR), low, cursor.revision), NEVER)
        acks.settle(cursor)
        acks.saved(cursor.revision)
        assert not acks.held, f"seed {world.seed}: something is held though all is over"
        for _ in range(5):
            Owner.clean(acks, logs)
        left = logs.pending.query(
            lambda log: [log.cursor(CURSOR).ends, log.cursor(CURSOR).life(LIFE).transactions()], NEVER
        )
        assert not any(left), f"seed {world.seed}: {left} are never cleaned"
        return acknowledged(cursor)


@pytest.mark.parametrize("seeds", in_three(20, range(40)), ids=str)
def test_each_input_takes_effect_once(seeds: range) -> None:
    assert sum(History(seed).run() for seed in seeds) > 4 * len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_each_input_takes_effect_once() -> None:
    processed = sum(History(seed).run() for seed in range(40, 3040))
    print(f"\n    3,000 histories, {processed:,} inputs processed")
    assert processed > 10_000
