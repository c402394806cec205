"""The invariants of docs/architecture.md#what-always-holds, judged from what workers wrote and what Kafka says.

1  an unacknowledged message is delivered again, whatever dies
2  a durably acknowledged message is never handed out again, but for a seek
3  mark-delete never passes an unacknowledged position and, but for a seek, never goes back
4  partition order in Exclusive and Failover
9  two processes that believe they own the same thing cannot both change it

A message is handed out when the member puts it into a consumer's inbox. What waits there when an older copy of it is
acknowledged is received all the same, as on Pulsar, and counted as a duplicate of its own kind. So is what a former
owner hands out that has not learnt yet, by an answer of Kafka's, that its partition is somebody else's.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pyroaring import BitMap64

from tests.chaos.evidence import NEVER, EvidenceLine, HandOut, Position, Receipt
from tests.chaos.history import History
from tests.chaos.outside import Entries, Sample
from tests.chaos.processes import WorkerProcess

UNEXPLAINED: Final = "same process"
"""A message came again to who had it, and nothing says why."""
_SHOWN = 5
_MESSAGE = re.compile(r"(?:Position\(partition=|\b)(\d+)(?:, offset=|:)(\d+)(?:, index=|:)(\d+)\b")
_ABOUT_ALL = "sbqckKExf"
"""What workers say of themselves, whatever partition it concerns."""
_LINE, _LINES = 100, 200
"""Of the evidence that is shown of one message: characters, and lines at the end."""
_ON_ITS_WAY_S = 2.0
"""From a lease in the log to an inbox, on a busy machine."""


@dataclass
class Verdict:
    """The findings of a run. `broken` is empty when everything held."""

    sent: int = 0
    received: int = 0
    handed_out: int = 0
    acknowledged: int = 0
    durable: int = 0
    remaining: int = 0
    kills: int = 0
    stops: int = 0
    refusals: int = 0
    seeks: int = 0
    samples: int = 0
    commits_seen: int = 0
    in_segments: int = 0
    flushes_refused: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    """Of each message that came again for no reason that is known here, what is known."""
    broken: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    """All that was written down about the first message of each finding."""

    def __str__(self) -> str:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(self.duplicates.items())) or "none"
        return (
            f"sent={self.sent} handed out={self.handed_out} received={self.received} acknowledged={self.acknowledged}"
            f" durable={self.durable} remaining={self.remaining} kills={self.kills} stops={self.stops}"
            f" refusals={self.refusals} seeks={self.seeks} commits seen={self.commits_seen} (of {self.samples} looks,"
            f" {self.in_segments} with segments) flushes refused={self.flushes_refused} duplicates: {causes};"
            f" broken: {len(self.broken)}" + "".join(f"\n{story}" for story in self.unexplained[:_SHOWN])
        )


class Case:
    """One subscription's evidence, and the questions asked of it."""

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        there: Mapping[Position, bytes],
        sentinel: bytes,
        samples: Sequence[Sample],
        remaining: Iterable[Position],
        *,
        ordered: bool,
        leased: bool = False,
    ) -> None:
        self._workers = {worker.name: worker for worker in workers}
        sent = {position for position, value in there.items() if value != sentinel}
        sentinels = there.keys() - sent
        self._sent = sent
        self._by_partition: dict[int, list[Position]] = defaultdict(list)
        for position in sorted(sent):
            self._by_partition[position.partition].append(position)
        self._samples = samples
        self._remaining = set(remaining) - sentinels
        self._ordered = ordered
        self._receipts: list[Receipt] = []
        self._hand_outs: list[HandOut] = []
        self._ownership: dict[tuple[str, int], list[EvidenceLine]] = {}
        self._takeovers: dict[int, list[tuple[int, float, str]]] = defaultdict(list)
        for worker in workers:
            testimony = worker.look()
            self._receipts += [receipt for receipt in testimony.receipts if receipt.position not in sentinels]
            self._hand_outs += [handed for handed in testimony.hand_outs if handed.position not in sentinels]
            for said in testimony.of_kind("o"):
                partition, version, _ = map(int, said.text.split())
                self._takeovers[partition].append((version, said.at, worker.name))
        self._receipts.sort(key=lambda receipt: receipt.at)
        self._history = History(
            sent,
            ([a for a in worker.testimony.acknowledgements if a.position not in sentinels] for worker in workers),
            (seek for worker in workers for seek in worker.testimony.seeks),
            leased=leased,
        )
        self._verdict = Verdict(
            sent=len(sent),
            received=len({receipt.position for receipt in self._receipts}),
            handed_out=len(self._hand_outs),
            acknowledged=len(self._history.acknowledged()),
            durable=len(self._history.durable()),
            remaining=len(self._remaining),
            kills=sum(worker.killed_at is not None for worker in workers),
            stops=sum(len(worker.stops) for worker in workers),
            refusals=sum(worker.testimony.count("n") for worker in workers),
            seeks=sum(worker.testimony.count("K") for worker in workers),
            commits_seen=len(samples),
            in_segments=sum(
                (state := sample.state()) is not None and state.marker_offset is not None for sample in samples
            ),
            flushes_refused=sum(worker.testimony.count("x") for worker in workers),
        )

    def judge(self) -> Verdict:
        self._mark_delete()
        self._nothing_lost()
        self._nothing_durable_again()
        self._one_owner_at_a_time()
        if self._ordered:
            self._order()
        self._count_duplicates()
        return self._verdict

    def _break(self, invariant: int, what: str, examples: Iterable[object]) -> None:
        shown = list(examples)
        if shown:
            self._verdict.broken.append(f"invariant {invariant}: {what}: {len(shown)}, such as {shown[:_SHOWN]}")
            message = _MESSAGE.search(str(shown[0]))
            if message is not None:
                self._verdict.evidence += self._evidence_of(Position(*map(int, message.groups())))

    def _evidence_of(self, position: Position) -> list[str]:
        """The lines about a message and about its partition, of all processes, by time."""
        about, partition = {mark + str(position) for mark in ("", "a", "A")}, str(position.partition)
        found: list[tuple[float, str]] = []
        for worker in self._workers.values():
            path = worker.testimony.path
            for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
                kind, at, *words = line.split(" ")
                said = about.intersection(words)
                owned = kind in "olvt" and partition in (words[:1] if kind == "o" else words)
                if said or owned or kind in _ABOUT_ALL:
                    told = " ".join([*said] if kind in "hd" else words)
                    found.append((float(at), f"{at} {worker.name} {kind} {told[:_LINE]}"))
        return [f"{position}:", *(line for _, line in sorted(found)[-_LINES:])]

    def _nothing_lost(self) -> None:
        """What nobody acknowledged is still there for the next consumer; what was never sent is not."""
        unacknowledged = {where for where in self._sent if not self._history.is_acknowledged(where, NEVER, NEVER)}
        self._break(1, "unacknowledged and not delivered again", sorted(unacknowledged - self._remaining))
        known = (
            {receipt.position for receipt in self._receipts} | self._remaining | {h.position for h in self._hand_outs}
        )
        passed = {where for where in self._sent - known if self._history.seek_between(where.partition, 0, NEVER)}
        self._break(1, "never delivered", sorted(self._sent - known - passed))
        self._break(1, "delivered, but not in the topic", sorted(known - self._sent))

    def _nothing_durable_again(self) -> None:
        durable_since = self._history.durable_since
        again = [where for where in sorted(self._remaining) if durable_since(where, NEVER) is not None]
        self._break(2, "durably acknowledged and delivered to the next consumer", again)
        late = [
            (handed.worker, str(handed.position), f"{handed.at - since:.3f} s later")
            for handed in self._hand_outs
            if (since := durable_since(handed.position, handed.at)) is not None
            and not self._has_not_learnt(handed)
            and not self._slept(handed, since)
        ]
        self._break(2, "handed out after the acknowledgement was durable", late)
        self._break(2, "received and not handed out", [r for r in self._receipts if self._handed_out(r) is None])

    def _handed_out(self, receipt: Receipt) -> HandOut | None:
        """The last time that its process put the message into an inbox before it was received."""
        handed = self._hand_outs_of.get((receipt.worker, receipt.position), [])
        index = bisect_right(handed, receipt.at, key=lambda one: one.at)
        return handed[index - 1] if index else None

    @cached_property
    def _hand_outs_of(self) -> dict[tuple[str, Position], list[HandOut]]:
        found: dict[tuple[str, Position], list[HandOut]] = defaultdict(list)
        for handed in self._hand_outs:
            found[handed.worker, handed.position].append(handed)
        return found

    def _has_not_learnt(self, handed: HandOut) -> bool:
        """Somebody else has taken the partition over, and the process has not been told."""
        partition = handed.position.partition
        own = 0
        for said in self._about(handed.worker, partition):
            if said.line > handed.line:
                break
            own = int(said.text.split()[1]) if said.kind == "o" else 0
        return own > 0 and any(version > own and at <= handed.at for version, at, _ in self._takeovers[partition])

    def _slept(self, handed: HandOut, since: float) -> bool:
        """It was leased the message and stopped while others acknowledged it; what tells it so comes behind. On
        Failover who had it before may acknowledge what is on its way to the next one."""
        stops = self._workers[handed.worker].stops
        on_its_way = self._ordered and not self._owns(handed.worker, handed) and handed.at - since < _ON_ITS_WAY_S
        return on_its_way or any(stopped <= since <= resumed for stopped, resumed in stops)

    def _about(self, worker: str, partition: int) -> list[EvidenceLine]:
        """What it said of having the partition and of having it no more."""
        if (worker, partition) not in self._ownership:
            self._ownership[worker, partition] = [
                said
                for said in self._workers[worker].testimony.said
                if said.kind in "olv" and str(partition) in said.text.split()[: 1 if said.kind == "o" else None]
            ]
        return self._ownership[worker, partition]

    def _mark_delete(self) -> None:
        """Everything below a committed offset, or called acknowledged in its metadata, was acknowledged."""
        passed: list[object] = []
        back: list[object] = []
        last: dict[int, tuple[Sample, Entries]] = {}
        for sample in self._samples:
            if sample.state() is None:
                self._verdict.broken.append(f"invariant 9: a commit without our metadata: {sample}")
            state = sample.in_commit()
            before, known = last.get(sample.partition, (sample, Entries(0)))
            if sample.offset < before.offset and not self._history.seek_between(
                sample.partition, before.asked, sample.at
            ):
                back.append((sample.partition, before.offset, sample.offset))
            for position in self._news(sample.partition, state, known):
                if self._history.is_acknowledged(position, sample.asked, sample.at):
                    self._history.saw(position, sample.asked, sample.at)
                else:
                    passed.append((str(position), f"committed {sample.offset}"))
            last[sample.partition] = (sample, state)
        self._break(3, "saved as acknowledged, but nobody did", passed)
        self._break(3, "mark-delete went back (partition, from, to)", back)

    def _news(self, partition: int, state: Entries, known: Entries) -> Iterator[Position]:
        """The messages of which `state` says more than `known` did."""
        there = self._by_partition[partition]
        start, end = bisect_left(there, (partition, known.below)), bisect_left(there, (partition, state.below))
        yield from (position for position in there[start:end] if not known.has(position))
        entries = (state.acked - known.acked) | BitMap64(state.batches)
        for offset in entries:
            index = bisect_left(there, (partition, offset))
            while index < len(there) and there[index].offset == offset:
                if state.has(there[index]) and not known.has(there[index]):
                    yield there[index]
                index += 1

    def _one_owner_at_a_time(self) -> None:
        """Versions of a cursor only grow, each is one session's, and within it saves only grow."""
        newest: dict[int, tuple[int, int]] = {}
        sessions: dict[tuple[int, int], bytes] = {}
        back: list[object] = []
        shared: list[object] = []
        for sample in self._samples:
            state = sample.state()
            if state is None:
                continue
            turn = (state.lineage.version, state.lineage.save)
            if turn < newest.get(sample.partition, (0, 0)):
                back.append((sample.partition, newest[sample.partition], turn))
            newest[sample.partition] = turn
            owner = sessions.setdefault((sample.partition, state.lineage.version), state.lineage.session)
            if owner != state.lineage.session:
                shared.append((sample.partition, state.lineage.version))
        self._break(9, "a save of an earlier owner stands after a later one (partition, newest, found)", back)
        self._break(9, "two sessions saved one version (partition, version)", shared)
        taken: Counter[tuple[int, int]] = Counter()
        for worker in self._workers.values():
            for said in worker.testimony.of_kind("o"):
                partition, version, _ = map(int, said.text.split())
                taken[partition, version] += 1
        self._break(9, "taken over twice (partition, version)", [turn for turn, count in taken.items() if count > 1])

    def _order(self) -> None:
        """A process gets a partition's messages in order, and those left out are acknowledged. Within one ownership,
        and while no other process gets any, they only move forward, but once for each refusal and seek at most."""
        self._gaps()
        changes = self._changes()
        disorder: list[object] = []
        for worker in self._workers.values():
            last: dict[int, Receipt] = {}
            steps_back: Counter[int] = Counter()
            takes = [(said.line, int(said.text.split()[0])) for said in worker.testimony.of_kind("o")]
            refused = [said.line for said in worker.testimony.of_kind("n")]
            for receipt in worker.testimony.receipts:
                while takes and takes[0][0] < receipt.line:
                    last.pop(takes.pop(0)[1], None)
                position = receipt.position
                before = last.get(position.partition)
                if before is not None and position <= before.position:
                    since, ours = bisect_right(changes[position.partition], before.at), self._owns(worker.name, receipt)
                    if not ours or since < bisect_left(changes[position.partition], receipt.at):
                        last[position.partition] = receipt
                        continue
                    steps_back[position.partition] += 1
                    seeks = self._history.seeks_begun(position.partition, receipt.at)
                    if steps_back[position.partition] > bisect_left(refused, receipt.line) + seeks:
                        disorder.append((worker.name, str(before.position), str(position)))
                last[position.partition] = receipt
        self._break(4, "out of order (worker, before, after)", disorder)

    def _changes(self) -> dict[int, list[float]]:
        """By partition: when another process than before was handed something or began to own it, and when an owner
        chose another active consumer. It may be that for a moment only, handed nothing: while a member is away, all
        partitions are counted out anew among the others."""
        found: dict[int, list[float]] = defaultdict(list)
        last: dict[int, str] = {}
        for handed in sorted(self._hand_outs, key=lambda each: each.at):
            partition = handed.position.partition
            if last.get(partition, handed.worker) != handed.worker:
                found[partition].append(handed.at)
            last[partition] = handed.worker
        for partition, turns in self._takeovers.items():
            found[partition] += (at for _, at, _ in turns)
        for worker in self._workers.values():
            for said in worker.testimony.of_kind("t"):
                for partition in map(int, said.text.split()):
                    found[partition].append(said.at)
        for times in found.values():
            times.sort()
        return found

    def _owns(self, worker: str, receipt: Receipt | HandOut) -> bool:
        said = [said for said in self._about(worker, receipt.position.partition) if said.line < receipt.line]
        return bool(said) and said[-1].kind == "o"

    def _gaps(self) -> None:
        """What lies between two messages that follow each other in an inbox is acknowledged."""
        missed: list[object] = []
        last: dict[tuple[str, int], HandOut] = {}
        for handed in self._hand_outs:
            position = handed.position
            before = last.get((handed.worker, position.partition))
            last[handed.worker, position.partition] = handed
            if before is None or position <= before.position:
                continue
            there = self._by_partition[position.partition]
            between = there[bisect_right(there, before.position) : bisect_left(there, position)]
            if between and not self._history.seek_between(position.partition, 0, handed.at):
                missed += [
                    (handed.worker, str(before.position), str(where), str(position))
                    for where in between
                    if not self._history.is_acknowledged(where, handed.at, handed.at)
                ]
        self._break(4, "left out (worker, before, what, after)", missed)

    def _count_duplicates(self) -> None:
        """Why a message was received more than once, by what had become of who received it before."""
        refused: dict[str, list[tuple[float, Position]]] = {
            worker.name: [(said.at, Position.parse(said.text)) for said in worker.testimony.of_kind("n")]
            for worker in self._workers.values()
        }
        holder: dict[Position, Receipt] = {}
        for receipt in self._receipts:
            before = holder.get(receipt.position)
            holder[receipt.position] = receipt
            if before is None:
                continue
            cause = self._cause(before, receipt, refused[before.worker])
            self._verdict.duplicates[cause] += 1
            if cause == UNEXPLAINED:
                self._verdict.unexplained.append(self._story(before, receipt, refused[before.worker]))

    def _story(self, before: Receipt, receipt: Receipt, refused: Sequence[tuple[float, Position]]) -> str:
        """What was written down about a message that came twice, in seconds since it came first."""
        handed, partition = self._handed_out(receipt), receipt.position.partition
        begins = sorted(at for _, at, _ in self._takeovers[partition])
        events = {
            "handed out again": [] if handed is None else [handed.at],
            "received again": [receipt.at],
            "acknowledged": self._history.said(receipt.position),
            "refused": [at for at, _ in refused[bisect_left(refused, (before.began - 5,)) :] if at <= receipt.at][-3:],
            "owners since": [at for at in begins if before.began - 5 <= at <= receipt.at],
        }
        said = ", ".join(f"{what} {[round(at - before.at, 3) for at in times]}" for what, times in events.items())
        return f"{receipt.position} at {receipt.worker}: {said}"

    def _cause(self, before: Receipt, receipt: Receipt, refused: Sequence[tuple[float, Position]]) -> str:
        worker = self._workers[before.worker]
        handed = self._handed_out(receipt)
        if self._history.reset_between(receipt.position, before.began, receipt.at):
            return "sought back"
        if handed is not None and self._has_not_learnt(handed):
            return "of a former owner that had not learnt yet"
        if self._history.durable_since(receipt.position, receipt.began) is not None:
            return "waited in the inbox when acknowledged"
        if worker.killed_at is not None and worker.killed_at <= receipt.at:
            return "holder killed"
        if any(stopped <= receipt.at for stopped, _ in worker.stops):
            return "holder stopped"
        if any(before.at <= said.at <= receipt.at for said in worker.testimony.of_kind("q")):
            return "holder closed"
        if before.worker != receipt.worker:
            return "partition moved"
        waits_s = worker.orders.nack_delay_ms / 1000
        for at, position in refused:
            whole_entry = self._ordered or position[:2] == receipt.position[:2]
            if before.began - waits_s <= at <= receipt.at and whole_entry:
                return "refused"
        if any(before.at <= said.at <= receipt.at for said in self._about(receipt.worker, receipt.position.partition)):
            return "partition came back"
        return UNEXPLAINED
