"""The producers of a topic across processes: claims by compare-and-set, heartbeats, and detection of being fenced.

A claim holds as long as its process sends a heartbeat every 3 s (10 s later it counts as dead; a process of the same
machine is known to be dead at once). A fenced producer detects it within a second, or, where its receipts are confirmed
(`Membership.confirm`), before any invalid receipt.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import ClusterClock
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.processes import is_dead_process, this_process
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned, readable
from pulsar_on_kafka.broker.metadata.producers.admission import (
    AccessMode,
    Applicant,
    ProducerAdmission,
    admit,
    dismiss,
    renewed,
    stands,
)
from pulsar_on_kafka.broker.metadata.producers.fence_log import (
    MAX_CLEANED,
    DataLog,
    FenceRecords,
    Offsets,
    TakeOverFences,
)
from pulsar_on_kafka.broker.metadata.producers.fence_view import Epoch, HeartbeatsAndFences, KnownFences, KnownTakeOvers
from pulsar_on_kafka.broker.metadata.producers.hashing_schemes import HashingSchemes
from pulsar_on_kafka.broker.metadata.producers.heartbeats import LIFE_MS, SessionHeartbeats
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.producers.producer_count import producers_beside
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.records.epoch_fences import END_ORIGIN, Fence, name_origin
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    ProducerClaim,
    ProducerClaims,
    claim_name,
    claimant,
    decode_claims,
    encode_claims,
)
from pulsar_on_kafka_mapping.state.state_keys import ProducerClaimsKey
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS

_log = logging.getLogger(__name__)

CLAIMS_KEYS: Final[EntityKeys[str]] = EntityKeys(ProducerClaimsKey)

_HEARTBEAT_EVERY_S: Final = 3.0
_LOOK_EVERY_S: Final = 1.0
_REST_FACTOR: Final = 10
"""The rest after a look, in the processor time that it took: with thousands of topics it counts."""
_HEARTBEATS_TOGETHER: Final = 500
"""Heartbeats of one append; joining waits for an append."""
_RETRY_INTERVAL_S: Final = 0.1
_REPORT_S: Final = 5.0
"""The longest wait of a delivery report for the reading of the claims; librdkafka serves no other report meanwhile."""
_REPORT_RETRY_INTERVAL_S: Final = 1.0
_LEAVING_S: Final = 12.0
_STOPPING_S: Final = 5.0
"""The time-out for all producers that are fenced together to stop. Heartbeats of others wait meanwhile."""


def claims_in(topic: Topic, known: ProducerClaims | None) -> ProducerClaims:
    """The claims of this incarnation of a topic: the recorded ones (`known`), or those of a topic without a producer of
    this product so far. A bound topic has records of other programs, but no chunks or markers. The epochs of its former
    incarnations continue, since no two claims have one number.

    Raises:
        NoSuchTopic: the incarnation was deleted after it was opened.
    """
    incarnation = topic.layout.incarnation
    if known is None or known.topic_incarnation < incarnation:
        epoch = 0 if known is None else known.epoch
        return ProducerClaims(str(topic.name), incarnation, epoch, plain=not topic.bound, unchunked=True, unmarked=True)
    if known.topic_incarnation > incarnation or known.ended:
        raise errors.NoSuchTopic(f"topic {topic.name} was deleted")
    return known


class ProducerRegistry:
    """This process's producers in one cluster. Thread-safe; a thread maintains the claims while there are any.

    Memory: one entry per producer, and the live records of the partitions of `producers` in use.
    """

    def __init__(self, log: StateLog, clock: ClusterClock, data: DataLog, offsets: Offsets) -> None:
        self._log = log
        self._clock = clock
        self._entities: Entities[str] = Entities(log, PRODUCERS, CLAIMS_KEYS, clock)
        self._session = secrets.token_hex(16)
        self._process = this_process()
        self._views = LogViews(log, PRODUCERS, lambda _: HeartbeatsAndFences(), clock)
        self.heartbeats: Final = SessionHeartbeats(log, self._views, clock, self._session)
        self._held: dict[str, dict[str, dict[Membership, None]]] = {}
        """Memberships in their order, by topic, then by `claim_name`; only unnamed producers share one. No map is
        empty."""
        self._stood: dict[str, int] = {}
        """By topic, the version of its claims in which all memberships stood at the last look."""
        self.fence_records = FenceRecords(
            log, data, offsets, lambda topic, question, deadline: self._views.query(
                topic, lambda state: question(state.fences.get(topic, _NOTHING)), deadline
            ),
        )  # fmt: skip
        self.take_overs = TakeOverFences(
            log, data, offsets, lambda topic, question, deadline: self._views.query(
                topic, lambda state: question(state.take_overs.get(topic, _NO_TAKE_OVERS)), deadline
            ),
        )  # fmt: skip
        self._noted: set[tuple[str, int, tuple[str, ...]]] = set()
        """Properties that are known to be recorded, by topic and incarnation."""
        """Topics, their lives, and whether for chunks, too, that are known to need a look at headers."""
        self._to_clean: dict[str, Topic] = {}
        self._locks: Final = [threading.RLock() for _ in range(PRODUCERS.partitions)]
        """By partition of `producers`: memberships of its topics change one after the other, also while they wait for
        the broker."""
        self._next_look_s, self._next_heartbeat_s = 0.0, 0.0
        self._keeper = Worker(
            "pok-producer-claims",
            self._keep,
            "producer claims could not be looked after",
            first_s=_LOOK_EVERY_S,
            retry=Retry(_LOOK_EVERY_S),
        )
        self.hashing_schemes = HashingSchemes(self._entities, claims_in, self._keeper.wake)
        self._unread: dict[int, tuple[str, float]] = {}
        """The last error of `claims_for_report`, and its validity, by partition of `producers`."""

    # In and out ---------------------------------------------------------------------------------------------------

    def join(
        self,
        topic: Topic,
        name: str | None,
        mode: AccessMode,
        deadline: Deadline,
        *,
        partition: int | None = None,
        own_epoch: bool = False,
        topic_epoch: int | None = None,
        limit: int = 0,
    ) -> Membership:
        """Admits a producer to one `partition` or to the whole topic; `name` None is an unnamed Shared producer. With
        `own_epoch` a named one gets an epoch of its own, as exclusive ones always do. `topic_epoch`: the epoch that it
        got when it was connected before. `limit`: the number of producers that the partition may have, 0 for any.

        Raises:
            TooManyProducers: it has as many. Unnamed producers of another process count 3 s late, and programs that
                open producers at the same moment do not count each other's.
            ProducerNameTaken, ProducerExcluded, ProducerOvertaken: see `producer_admission.admit`.
            NoSuchTopic: the topic was deleted after it was opened. TopicIsTerminated.
            DeadlineExceeded: WaitForExclusive waited in vain.
        """
        place = str(topic.name)
        claimed = claim_name(f"*{self._session}" if name is None else name, partition)
        pause = threading.Event()
        applicant = Applicant(
            claimed, mode, self._session, self._process, 0, own_epoch and not claimed.startswith("*"), topic_epoch
        )
        while True:
            try:
                with self._lock_of(place):
                    if limit:
                        self._check_limit(limit, topic, claimed, deadline)
                    joined, displaced = self._join(topic, applicant, deadline)
                break
            except errors.ProducerExcluded as refused:
                if mode is not AccessMode.WAIT_FOR_EXCLUSIVE or isinstance(refused, errors.ProducerOvertaken):
                    raise
                deadline.check(f"{place} to be free of other producers")
                pause.wait(_RETRY_INTERVAL_S)
        # Exclusive ones confirm each receipt.
        self._await_departure(place, [claim for claim in displaced if not claim.exclusive], deadline)
        if joined.claim.exclusive:
            try:
                self.fence_records.begin(topic, Epoch(joined.name, joined.epoch), deadline)
            except errors.LayerError:
                self.leave(joined, deadline)
                raise
            self._to_clean[place] = topic
        return joined

    def _join(self, topic: Topic, applicant: Applicant, deadline: Deadline) -> tuple[Membership, list[ProducerClaim]]:
        place, claimed, incarnation = str(topic.name), applicant.name, topic.layout.incarnation
        unnamed = claimed.startswith("*")
        beside = self._held.get(place, {}).get(claimed)
        if beside and unnamed and (head := next(iter(beside))).incarnation == incarnation:
            joined = Membership(self, place, incarnation, claimed, head.claim)
            beside[joined] = None
            return joined, []
        admission: list[ProducerAdmission] = []

        def admitted(current: Versioned | None) -> bytes | None:
            claims = claims_in(topic, None if current is None else decode_claims(current.value))
            if claims.terminated:
                raise errors.TopicIsTerminated(f"topic {place} was terminated: it takes no further message")
            if admission and stands(claims, claimed, admission[0].own):
                return None  # a time-out had hidden that it was written
            now = replace(applicant, deadline_ms=self._clock.now_ms() + LIFE_MS)
            admission[:] = [admit(claims, now, self._lives_at(place, deadline))]
            return encode_claims(admission[0].claims)

        if place not in self._held:
            self._send_heartbeats([place], deadline)
        claims = decode_claims(self._entities.update(place, admitted, deadline).value)
        displaced = admission[0].displaced
        if displaced:
            self.heartbeats.give_up(_report(self._take_out(place, claims)))
        lapsed = errors.ProducerExcluded(f"producer {applicant.producer} of {place} was taken for dead and replaced")
        self.heartbeats.give_up(_report([(each, lapsed) for each in self._held.get(place, {}).pop(claimed, ())]))
        joined = Membership(self, place, incarnation, claimed, admission[0].own, admission[0].topic_epoch)
        self._held.setdefault(place, {})[claimed] = {joined: None}
        self._keeper.start()
        return joined, [claim for claim in displaced.values() if claim.session != self._session]

    def renew(self, membership: Membership, deadline: Deadline) -> None:
        """Gives a named producer an epoch that no other producer has or had.

        Raises:
            ProducerExcluded: it was fenced.
        """

        def raised(current: Versioned | None) -> bytes | None:
            claims = ProducerClaims(membership.topic, 0) if current is None else decode_claims(current.value)
            if claim and stands(claims, membership.name, claim[0]):
                return None  # a time-out had hidden that it was written
            if not membership.stands(claims):
                raise membership.why_out(claims)
            record = renewed(claims, membership.name)
            claim[:] = [record.claims[membership.name]]
            return encode_claims(record)

        claim: list[ProducerClaim] = []
        with self._lock_of(membership.topic):
            self._entities.update(membership.topic, raised, deadline)
            membership.claim = claim[0]

    def more_than_plain(self, topic: Topic, deadline: Deadline, *, chunks: bool = False, raw: bool = False) -> None:
        """Records, before the first such record is sent, that readers of the topic need headers (see
        `ProducerClaims.plain`), with `chunks` that some messages must be assembled (`unchunked`), and with `raw` that
        some have a Pulsar client's batching or compression. Sends no request once that is known.

        Raises:
            StoreError: it is not known to be recorded.
        """
        self._note(topic, ("plain", *(["unchunked"] if chunks else []), *(["raw"] if raw else [])), deadline)

    def marked(self, topic: Topic, deadline: Deadline) -> None:
        """Likewise, before the first message of a transaction is sent, that markers may lie among the messages (see
        `ProducerClaims.unmarked`). Raises StoreError."""
        self._note(topic, ("unmarked",), deadline)

    def _note(self, topic: Topic, what: tuple[str, ...], deadline: Deadline) -> None:
        place, life = str(topic.name), topic.layout.incarnation
        if (place, life, what) in self._noted:
            return

        def updated(current: Versioned | None) -> bytes | None:
            known = None if current is None else decode_claims(current.value)
            claims = claims_in(topic, known)
            left = replace(
                claims,
                plain=claims.plain and "plain" not in what,
                unchunked=claims.unchunked and "unchunked" not in what,
                unmarked=claims.unmarked and "unmarked" not in what,
                raw=claims.raw or "raw" in what,
            )
            return None if left == known else encode_claims(left)

        self._entities.update(place, updated, deadline)
        self._noted.add((place, life, what))

    def leave(self, membership: Membership, deadline: Deadline, *, unsettled: int = 0) -> None:
        """Give up the claim of a producer of which so many records may still be stored."""
        with self._lock_of(membership.topic):
            held = self._held.get(membership.topic, {}).get(membership.name, {})
            if membership not in held:
                return
            if unsettled:
                self.heartbeats.give_up([membership.topic])
            del held[membership]
            if held:
                self.heartbeat_soon(membership.topic)
                return
            self._forget(membership.topic, membership.name)
            self.hashing_schemes.note(deadline)

            def left(current: Versioned) -> bytes | None:
                claims = decode_claims(current.value)
                rest = dismiss(claims, membership.name, self._session)
                return None if rest is claims else encode_claims(rest)

            self._entities.amend(membership.topic, left, deadline)
            if membership.topic in self._held:
                self.heartbeat_soon(membership.topic)
            else:
                self.heartbeats.withdraw(membership.topic, deadline)

    def dismiss_session(self, topic: str, session: str, deadline: Deadline) -> None:
        """Take back whatever a session claims on a topic: its process is dead."""

        def dismissed(current: Versioned) -> bytes | None:
            claims = decode_claims(current.value)
            living = {name: claim for name, claim in claims.claims.items() if claim.session != session}
            return None if len(living) == len(claims.claims) else encode_claims(replace(claims, claims=living))

        self._entities.amend(topic, dismissed, deadline)

    def unclaimed(self, partition: int, deadline: Deadline) -> dict[str, Versioned]:
        """Records in one partition of `producers` of topics without claims and without epochs, by name."""
        found = self._entities.in_partition(partition, decode_claims, deadline)
        return {
            topic: state
            for topic, (state, claims) in found.items()
            if not claims.epoch and (claims.ended or not claims.claims)
        }

    def remove_dead(self, partition: int, unclaimed: Mapping[str, Versioned], deadline: Deadline) -> int:
        """Take what `unclaimed` found out of the log, of topics that are gone. Where an epoch was given it stays: a
        producer of a former life must not come back with a higher one than those of the next life."""
        return self._entities.remove_dead(partition, unclaimed, deadline)

    def end_incarnation(self, topic: str, incarnation: int, deadline: Deadline) -> set[str]:
        """Fences the producers of an incarnation that is being deleted, admits no others to it, and waits until they
        have stopped. Returns the sessions that have not reported their end, also of dead processes: a record that they
        sent may still be stored."""

        def ended(current: Versioned | None) -> bytes | None:
            claims = ProducerClaims(topic, 0) if current is None else decode_claims(current.value)
            if claims.topic_incarnation > incarnation or (claims.topic_incarnation == incarnation and claims.ended):
                return None
            if claims.topic_incarnation < incarnation:
                claims = ProducerClaims(topic, incarnation, claims.epoch)
            return encode_claims(replace(claims, ended=True))

        claims = decode_claims(self._entities.update(topic, ended, deadline).value)
        if claims.topic_incarnation != incarnation:
            return set()  # the deletion came to its end long ago
        self._end_all(topic, claims, deadline)
        return self.heartbeats.may_have_sent(topic, deadline)

    def terminate(
        self, topic: Topic, append: Callable[[int, Sequence[int]], Mapping[int, int]], deadline: Deadline
    ) -> dict[int, int]:
        """Fences the producers of a topic for good, admits no others to it, waits until they have stopped, and begins
        the epoch of the end. Returns the offsets of its markers, which `append` appends (epoch, partitions). A second
        call returns the same.

        Raises:
            NoSuchTopic: the topic was deleted after it was opened.
            DeadlineExceeded: producers have not reported that they stopped. Call again.
        """
        place = str(topic.name)

        def terminated(current: Versioned | None) -> bytes | None:
            claims = claims_in(topic, None if current is None else decode_claims(current.value))
            if claims.terminated:
                return None
            epoch = claims.epoch + 1
            return encode_claims(replace(claims, epoch=epoch, terminated=epoch, plain=False, unmarked=False))

        def without_claims(current: Versioned) -> bytes | None:
            claims = decode_claims(current.value)
            return encode_claims(replace(claims, claims={})) if claims.terminated and claims.claims else None

        claims = decode_claims(self._entities.update(place, terminated, deadline).value)
        if not self._end_all(place, claims, deadline):
            raise errors.DeadlineExceeded(f"producers of {place} have not reported that they stopped, try again")
        self._entities.amend(place, without_claims, deadline)
        epoch = claims.terminated
        partitions = range(topic.partitions)
        return self.take_overs.begin(topic, END_ORIGIN, epoch, partitions, partial(append, epoch), deadline)

    def _end_all(self, topic: str, claims: ProducerClaims, deadline: Deadline) -> bool:
        """Waits until the producers with these claims, which stand no more, have stopped; False if some have not."""
        with self._lock_of(topic):
            out = self._take_out(topic, claims)
        left = _report(out)
        with self._lock_of(topic):
            self.heartbeats.give_up(left)
            if out and not left and topic not in self._held:
                self.heartbeats.withdraw(topic, deadline)
        return self._await_departure(topic, list(claims.claims.values()), deadline)

    def heartbeat_soon(self, topic: str) -> None:
        """Schedules an early heartbeat of a topic's producers."""
        self.heartbeats.rests.change(topic)
        self._keeper.wake()

    def connected(self, topic: Topic, deadline: Deadline) -> list[str]:
        """The names of a topic's living producers; `unnamed` stands for all of one process that have none."""
        place = str(topic.name)
        claims = self.claims_of(place, deadline)
        if claims.topic_incarnation != topic.layout.incarnation or claims.ended:
            return []
        lives = self._lives_at(place, deadline)
        living = [name for name, claim in claims.claims.items() if lives(name, claim)]
        names = {claimant(name)[0] for name in living}
        return sorted("unnamed" if name.startswith("*") else name for name in names)

    def _check_limit(self, limit: int, topic: Topic, joining: str, deadline: Deadline) -> None:
        place = str(topic.name)
        claims, lives = self.claims_of(place, deadline), self._lives_at(place, deadline)
        if claims.topic_incarnation != topic.layout.incarnation:
            return
        own = {name: len(held) for name, held in self._held.get(place, {}).items()}
        others = {
            name: claim.session
            for name, claim in claims.claims.items()
            if claim.session != self._session and lives(name, claim)
        }
        there = producers_beside(
            joining, own, others, lambda session: self.heartbeats.producers_of(place, session, deadline)
        )
        if there >= limit:
            raise errors.TooManyProducers(f"Topic reached max producers limit: {place} has {there} of {limit}")

    def claims_of(self, topic: str, deadline: Deadline) -> ProducerClaims:
        """The topic's claims as they stand in the log now."""
        current = self._entities.read(topic, deadline)
        return ProducerClaims(topic, 0) if current is None else decode_claims(current.value)

    def claims_for_report(self, topic: str) -> ProducerClaims:
        """`claims_of` for a thread that serves delivery reports. The first one waits 5 s at most for a partition of
        `producers`; its error counts for the reports of the next second, too, of every producer.

        Raises:
            StoreError: the claims were not read within the last second.
        """
        partition, now_s = PRODUCERS.partition_for(topic), self._clock.monotonic()
        failure, counts_until_s = self._unread.get(partition, ("", now_s))
        if now_s < counts_until_s:
            raise errors.StoreError(failure)
        try:
            return self.claims_of(topic, Deadline.after(_REPORT_S))
        except errors.LayerError as unread:
            self._unread[partition] = str(unread), self._clock.monotonic() + _REPORT_RETRY_INTERVAL_S
            raise

    def routed_by(self, topic: Topic, deadline: Deadline) -> tuple[str, ...]:
        """The hashing schemes that are on record for a topic's keyed messages, the first one first."""
        claims = self.claims_of(str(topic.name), deadline)
        return claims.hashing_schemes if claims.topic_incarnation == topic.layout.incarnation else ()

    def take_over_name(
        self,
        topic: Topic,
        name: str,
        epoch: int,
        partitions: Sequence[int],
        append: Callable[[Sequence[int]], Mapping[int, int]],
        deadline: Deadline,
    ) -> dict[int, int]:
        """Begin an epoch of a producer name: what its former holders append behind the markers is void. Gives the
        offsets of the markers, which `append` appends."""
        self.marked(topic, deadline)
        return self.take_overs.begin(topic, name_origin(name), epoch, partitions, append, deadline)

    def is_fenced(self, topic: Topic, name: str, deadline: Deadline) -> bool:
        """A holder of this producer name began an epoch somewhere in the topic: records of lower ones are void."""
        return self.take_overs.has_begun(topic, name_origin(name), deadline)

    def fences(self, topic: Topic, partition: int, deadline: Deadline) -> list[Fence]:
        """`fences_of` one partition."""
        return self.fences_of(topic, [partition], deadline)[partition]

    def fences_of(
        self, topic: Topic, partitions: Sequence[int], deadline: Deadline, *, name: str | None = None
    ) -> dict[int, list[Fence]]:
        """The beginnings of epochs in partitions at present: of exclusive producers, replicators and producer names.
        With `name` only those that can void records of this producer name.

        Without the right to read `producers` the result is empty: then those in the records that are read count.
        """
        try:
            exclusive = self.fence_records.of_partitions(topic, partitions, deadline)
            origin = None if name is None else name_origin(name)
            taken_over = self.take_overs.of_partitions(topic, partitions, deadline, origin=origin)
            return {p: [*(Fence(*found) for found in exclusive[p]), *taken_over[p]] for p in partitions}
        except errors.NotAuthorized as refused:
            _log.warning("topic=%s void records from before are not known: %s", topic.name, refused)
            return {p: [] for p in partitions}

    def touch(self, deadline: Deadline) -> None:
        """Append what changes nothing, for the time in a broker's answer."""
        self._entities.touch(str(PRODUCERS.topic_name), deadline)

    def close(self, deadline: Deadline) -> None:
        """Leave with every producer that has not."""
        self._keeper.close(deadline.at_most(_HEARTBEAT_EVERY_S))
        for topic in list(self._held):
            for membership in self._held_on(topic):
                self.leave(membership, deadline)

    # Who lives ----------------------------------------------------------------------------------------------------

    def _lock_of(self, topic: str) -> threading.RLock:
        return self._locks[PRODUCERS.partition_for(topic)]

    def _held_on(self, topic: str) -> list[Membership]:
        """This process's memberships on a topic."""
        return [membership for held in list(self._held.get(topic, {}).values()) for membership in list(held)]

    def _forget(self, topic: str, name: str) -> None:
        """Removes the memberships of a `claim_name`."""
        named = self._held[topic]
        del named[name]
        if not named:
            del self._held[topic]
            self._stood.pop(topic, None)

    def _lives_at(self, topic: str, deadline: Deadline) -> Callable[[str, ProducerClaim], bool]:
        """Whether a claim on the topic is valid. Each other session's heartbeat is read once at most."""
        heartbeats: dict[str, int] = {}

        def lives(name: str, claim: ProducerClaim) -> bool:
            if claim.session == self._session:
                return name in self._held.get(topic, {})
            if is_dead_process(claim.process):
                return False
            now_ms = self._clock.now_ms()
            if now_ms < claim.deadline_ms:
                return True
            if claim.session not in heartbeats:
                heartbeats[claim.session] = self.heartbeats.deadline_ms(topic, claim.session, deadline)
            return now_ms < heartbeats[claim.session]

        return lives

    def _await_departure(self, topic: str, displaced: Sequence[ProducerClaim], deadline: Deadline) -> bool:
        """Wait until these producers that were thrown out have stopped, or count as dead; False if some have not."""
        waiting = list(displaced)

        def gone() -> bool:
            waiting[:] = [
                claim
                for claim in waiting
                if not is_dead_process(claim.process)
                and self.heartbeats.deadline_ms(topic, claim.session, deadline) > self._clock.now_ms()
            ]
            return not waiting

        if waiting and not wait_until(gone, deadline.at_most(_LEAVING_S)):
            _log.warning("topic=%s %d fenced producers have not reported that they stopped", topic, len(waiting))
        return not waiting

    def _send_heartbeats(self, topics: Sequence[str], deadline: Deadline) -> None:
        """Sends the heartbeats of topics in one partition of `producers`, together."""
        held = {topic: self._held_on(topic) for topic in topics}
        sent = self.heartbeats.send(held, deadline)
        for topic, memberships in held.items():
            lapsed = memberships and not self.heartbeats.is_sure_of(topic)
            if lapsed and not self._claims_stand(topic, memberships, deadline):
                self._next_look_s = 0.0
            else:
                self.heartbeats.count(topic, sent)

    def _claims_stand(self, topic: str, held: Sequence[Membership], deadline: Deadline) -> bool:
        """Write a topic's claims once more, after a heartbeat that followed a lapse. A process that judged by the lapse
        loses its compare-and-set, and then sees the heartbeat; where it had won before, a claim does not stand."""
        found = self._entities.amend(topic, lambda current: current.value, deadline)
        claims = ProducerClaims(topic, 0) if found is None else decode_claims(found.value)
        return all(membership.stands(claims) for membership in held)

    # The keeper's thread ------------------------------------------------------------------------------------------

    def _keep(self) -> float:
        self.hashing_schemes.note(Deadline.after(_HEARTBEAT_EVERY_S))
        now_s = self._clock.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_EVERY_S
            began_s = time.thread_time()
            self._look(Deadline.after(_HEARTBEAT_EVERY_S))
            rest_s = _REST_FACTOR * (time.thread_time() - began_s)
            self._next_look_s = max(self._next_look_s, self._clock.monotonic() + rest_s)
            self._clean_one(Deadline.after(_HEARTBEAT_EVERY_S))
        now_s, topics = self._clock.monotonic(), set(self._held)
        if now_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now_s + _HEARTBEAT_EVERY_S
            self._keep_alive(topics)
        else:
            self._keep_alive(self.heartbeats.rests.due(topics, now_s))
        return max(0.0, self.heartbeats.rests.next_s(topics, self._next_look_s) - self._clock.monotonic())

    def _keep_alive(self, topics: Collection[str]) -> None:
        """Sends heartbeats, but none for a topic that was left: no process would withdraw it. A partition that fails
        holds up no other one. Raises the error of the last one that failed."""
        failed: errors.LayerError | None = None
        for beside in _by_partition(topics):
            for first in range(0, len(beside), _HEARTBEATS_TOGETHER):
                with self._lock_of(beside[0]):
                    together = [topic for topic in beside[first : first + _HEARTBEATS_TOGETHER] if topic in self._held]
                    try:
                        self._send_heartbeats(together, Deadline.after(_HEARTBEAT_EVERY_S))
                    except errors.LayerError as failure:
                        failed = failure
                        break
        if failed is not None:
            raise failed

    def _look(self, deadline: Deadline) -> None:
        for topics in _by_partition(list(self._held)):
            beside = self._entities.beside(topics[0], deadline)
            suspects = [topic for topic in topics if not self._stand(topic, beside.get(topic))]
            if not suspects:
                continue
            with self._lock_of(topics[0]):  # some may have joined, or epochs been raised, since the reading
                now = {topic: self.claims_of(topic, deadline) for topic in suspects}
                out = [one for topic in suspects for one in self._take_out(topic, now[topic])]
                stopping = {each.topic for each, _ in out if each.topic not in self._held}
            left = _report(out)
            self.heartbeats.give_up(left)
            for topic in stopping - left:
                self.heartbeats.withdraw(topic, deadline)

    def _stand(self, topic: str, state: Versioned | None) -> bool:
        """Whether the topic's memberships stand in its claims. Claims of the version of the last look are not read."""
        if state is None:
            return False
        if self._stood.get(topic) == state.version:
            return True
        claims = next(readable([state], decode_claims), ProducerClaims(topic, 0))
        with self._lock_of(topic):
            # Memberships of one `claim_name` share its claim.
            stand = all(next(iter(held)).stands(claims) for held in self._held.get(topic, {}).values())
            if stand and topic in self._held:
                self._stood[topic] = state.version
        return stand

    def _clean_one(self, deadline: Deadline) -> None:
        """Clean the records of one topic that had an exclusive producer of this process since the last time."""
        for place, topic in list(self._to_clean.items())[:1]:
            del self._to_clean[place]
            if self.fence_records.clean(topic, deadline) == MAX_CLEANED:
                self._to_clean[place] = topic

    def _take_out(self, topic: str, claims: ProducerClaims) -> list[tuple[Membership, errors.Refused]]:
        """Removes the memberships that do not stand in their topic's claims; returns them with the reasons."""
        out: list[tuple[Membership, errors.Refused]] = []
        for name, held in list(self._held.get(topic, {}).items()):
            if not next(iter(held)).stands(claims):
                self._forget(topic, name)
                out += [(each, each.why_out(claims)) for each in held]
        return out


def _by_partition(topics: Iterable[str]) -> Collection[list[str]]:
    """The topics of each partition of `producers`."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for topic in topics:
        found[PRODUCERS.partition_for(topic)].append(topic)
    return found.values()


def _report(thrown_out: Sequence[tuple[Membership, errors.Refused]]) -> set[str]:
    """Requests these producers to stop, and waits for their messages under way. Returns the topics of which records may
    still be stored: there the heartbeat stays, so that no process takes them for stopped."""
    left: set[str] = set()
    deadline = Deadline.after(_STOPPING_S)
    for membership, reason in thrown_out:
        try:
            if membership.throw_out(reason, deadline):
                left.add(membership.topic)
        except Exception:  # the others must be notified all the same
            left.add(membership.topic)
            _log.exception("producer=%s could not be notified that it was fenced", membership.name)
    return left


_NOTHING: Final = KnownFences()
_NO_TAKE_OVERS: Final = KnownTakeOvers()
