"""The invariants of design.md 12, judged from what the workers wrote down and what Kafka itself says.

1  an unacknowledged message is delivered again, whatever dies
2  a durably acknowledged message is never delivered again
3  mark-delete never passes an unacknowledged position and never goes back
4  partition order in Exclusive and Failover
9  two processes that believe they own the same thing cannot both change it
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.evidence import Position, Receipt
from tests.chaos.outside import Sample
from tests.chaos.processes import WorkerProcess

_SHOWN = 5
_DISCARDING_S = 0.2
"""How long after a member learnt of a loss its inboxes may still be read: it empties them right after it said so."""


@dataclass
class Verdict:
    """What was found. `broken` is empty when everything held."""

    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    durable: int = 0
    remaining: int = 0
    kills: int = 0
    stops: int = 0
    samples: int = 0
    commits_seen: int = 0
    flushes_refused: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(self.duplicates.items())) or "none"
        return (
            f"sent={self.sent} received={self.received} acknowledged={self.acknowledged} durable={self.durable}"
            f" remaining={self.remaining} kills={self.kills} stops={self.stops} commits seen={self.commits_seen}"
            f" (of {self.samples} looks) flushes refused={self.flushes_refused} duplicates: {causes};"
            f" broken: {len(self.broken)}"
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
    ) -> None:
        self._workers = {worker.name: worker for worker in workers}
        sent = {position for position, value in there.items() if value != sentinel}
        sentinels = there.keys() - sent
        self._sent = sent
        self._samples = samples
        self._remaining = set(remaining) - sentinels
        self._ordered = ordered
        self._receipts: list[Receipt] = []
        self._acknowledged: dict[Position, float] = {}
        self._durable: dict[Position, float] = {}
        for worker in workers:
            testimony = worker.look()
            self._receipts += [receipt for receipt in testimony.receipts if receipt.position not in sentinels]
            _earliest(self._acknowledged, testimony.acknowledged, sentinels)
            _earliest(self._durable, testimony.durable, sentinels)
        self._receipts.sort(key=lambda receipt: receipt.at)
        self._verdict = Verdict(
            sent=len(sent),
            received=len({receipt.position for receipt in self._receipts}),
            acknowledged=len(self._acknowledged),
            durable=len(self._durable),
            remaining=len(self._remaining),
            kills=sum(worker.killed_at is not None for worker in workers),
            stops=sum(len(worker.stops) for worker in workers),
            commits_seen=len(samples),
            flushes_refused=sum(worker.look().count("x") for worker in workers),
        )

    def judge(self) -> Verdict:
        self._nothing_lost()
        self._nothing_durable_again()
        self._mark_delete()
        self._one_owner_at_a_time()
        if self._ordered:
            self._order()
        self._count_duplicates()
        return self._verdict

    def _break(self, invariant: int, what: str, examples: Iterable[object]) -> None:
        shown = list(examples)
        if shown:
            self._verdict.broken.append(f"invariant {invariant}: {what}: {len(shown)}, such as {shown[:_SHOWN]}")

    def _nothing_lost(self) -> None:
        """What nobody acknowledged is still there for the next consumer; what was never sent is not."""
        unacknowledged = self._sent - self._acknowledged.keys()
        self._break(1, "unacknowledged and not delivered again", sorted(unacknowledged - self._remaining))
        known = {receipt.position for receipt in self._receipts} | self._remaining
        self._break(1, "never delivered", sorted(self._sent - known))
        self._break(1, "delivered, but not in the topic", sorted(known - self._sent))

    def _nothing_durable_again(self) -> None:
        self._break(
            2, "durably acknowledged and delivered to the next consumer", sorted(self._remaining & self._durable.keys())
        )
        again = [
            (receipt.worker, receipt.position, f"{receipt.began - self._durable[receipt.position]:.3f} s later")
            for receipt in self._receipts
            if receipt.position in self._durable
            and receipt.began > self._durable[receipt.position]
            and not self._is_stale(receipt)
        ]
        self._break(2, "delivered after the acknowledgement was durable", again)

    def _is_stale(self, receipt: Receipt) -> bool:
        """Out of the inbox of a process that was stopped and has not had time to learn what happened meanwhile."""
        worker = self._workers[receipt.worker]
        stop = next((stop for stop in reversed(worker.stops) if stop[1] <= receipt.at), None)
        if stop is None:
            return False
        partition = receipt.position[0]
        for said in worker.testimony.said:
            if said.at < stop[0]:
                continue
            if said.kind == "l" and str(partition) in said.text.split():
                return receipt.at <= said.at + _DISCARDING_S
            if said.kind == "o" and said.text.split()[0] == str(partition):
                return receipt.line < said.line
        return True

    def _mark_delete(self) -> None:
        """Everything below a committed offset, or called acknowledged in its metadata, was acknowledged."""
        by_partition: dict[int, list[int]] = defaultdict(list)
        for partition, offset in sorted(self._sent):
            by_partition[partition].append(offset)
        passed: list[object] = []
        holes: list[object] = []
        back: list[object] = []
        reached: dict[int, int] = {}
        known: dict[int, set[int]] = defaultdict(set)
        for sample in self._samples:
            before = reached.get(sample.partition, 0)
            if sample.offset < before:
                back.append((sample.partition, before, sample.offset))
            offsets = by_partition[sample.partition]
            for offset in offsets[bisect_left(offsets, before) : bisect_left(offsets, sample.offset)]:
                if not self._acknowledged.get((sample.partition, offset), sample.at) < sample.at:
                    passed.append((sample.partition, offset, sample.offset))
            reached[sample.partition] = max(before, sample.offset)
            state = sample.state()
            if state is None:
                self._verdict.broken.append(f"invariant 9: a commit without our metadata: {sample}")
            elif state.holes is not None:
                acked = {sample.offset + relative for relative in state.holes.acked}
                for offset in acked - known[sample.partition]:
                    position = (sample.partition, offset)
                    if position in self._sent and not self._acknowledged.get(position, sample.at) < sample.at:
                        holes.append(position)
                known[sample.partition] |= acked
        self._break(3, "mark-delete passed (partition, offset unacknowledged, committed)", passed)
        self._break(3, "saved as acknowledged, but nobody did", holes)
        self._break(3, "mark-delete went back (partition, from, to)", back)

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
        """Within one ownership a partition's offsets only grow (no worker asks for a redelivery)."""
        disorder: list[object] = []
        for worker in self._workers.values():
            last: dict[int, int] = {}
            takes = [(said.line, int(said.text.split()[0])) for said in worker.testimony.of_kind("o")]
            for receipt in worker.testimony.receipts:
                while takes and takes[0][0] < receipt.line:
                    last.pop(takes.pop(0)[1], None)
                partition, offset = receipt.position
                if offset <= last.get(partition, -1):
                    disorder.append((worker.name, partition, last[partition], offset))
                last[partition] = offset
        self._break(4, "out of order (worker, partition, before, after)", disorder)

    def _count_duplicates(self) -> None:
        """Why a message was received more than once, by what had become of who received it before."""
        holder: dict[Position, Receipt] = {}
        for receipt in self._receipts:
            before = holder.get(receipt.position)
            holder[receipt.position] = receipt
            if before is None:
                continue
            worker = self._workers[before.worker]
            if self._is_stale(receipt) and receipt.position in self._durable:
                cause = "out of a stopped process's inbox"
            elif worker.killed_at is not None and worker.killed_at <= receipt.at:
                cause = "holder killed"
            elif any(stopped <= receipt.at for stopped, _ in worker.stops):
                cause = "holder stopped"
            elif any(before.at <= said.at <= receipt.at for said in worker.testimony.of_kind("q")):
                cause = "holder closed"
            elif before.worker != receipt.worker:
                cause = "partition moved"
            else:
                cause = "same process"
            self._verdict.duplicates[cause] += 1


def _earliest(into: dict[Position, float], more: Mapping[Position, float], without: set[Position]) -> None:
    for position, at in more.items():
        if position not in without and at < into.get(position, float("inf")):
            into[position] = at
