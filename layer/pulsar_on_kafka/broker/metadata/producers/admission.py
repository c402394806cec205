"""Admission decides which producers may write to a topic together: the rules of access modes and producer names.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka_mapping.state.metadata.producer_records import ProducerClaim, ProducerClaims, claimant

_WHOLE: Final = ""


class AccessMode(Enum):
    """Pulsar's `ProducerAccessMode`."""

    SHARED = "Shared"
    EXCLUSIVE = "Exclusive"
    WAIT_FOR_EXCLUSIVE = "WaitForExclusive"
    EXCLUSIVE_WITH_FENCING = "ExclusiveWithFencing"


@dataclass(frozen=True, slots=True)
class Applicant:
    """A producer that requests admission. `name` is its `claim_name`, with `*<session>` for the unnamed Shared ones of
    a process.

    `own_epoch`: whether a Shared one gets an epoch that no other producer of the topic has or had.

    `topic_epoch`: the epoch that a reconnecting exclusive producer got before (`ProducerClaims.topic_epochs`).
    """

    name: str
    mode: AccessMode
    session: str
    process: str
    deadline_ms: int
    own_epoch: bool = False
    topic_epoch: int | None = None

    @property
    def producer(self) -> str:
        return claimant(self.name)[0]

    @property
    def exclusive(self) -> bool:
        return self.mode is not AccessMode.SHARED


@dataclass(frozen=True, slots=True)
class ProducerAdmission:
    """The claims with the applicant's among them, its own one, who was thrown out for it, and the topic epoch of one
    that is exclusive (0 otherwise)."""

    claims: ProducerClaims
    own: ProducerClaim
    displaced: Mapping[str, ProducerClaim]
    topic_epoch: int = 0


def admit(
    claims: ProducerClaims, applicant: Applicant, alive: Callable[[str, ProducerClaim], bool]
) -> ProducerAdmission:
    """Admits `applicant` beside, or instead of, the live producers, and removes the claims of dead ones. Producers of
    different partitions do not exclude each other.

    Raises:
        ProducerNameTaken: its name is taken, or (Shared) the topic has an exclusive producer.
        ProducerExcluded: it requires the topic for itself, and others are connected (WaitForExclusive: try again
            later).
        ProducerOvertaken: it reconnects, and another producer has had the topic exclusively since.
    Source: Pulsar's `AbstractTopic.incrementTopicEpochIfNeeded`, seen on 4.0.7.
    """
    living = {name: claim for name, claim in claims.claims.items() if alive(name, claim)}
    beside = {name: claim for name, claim in living.items() if _meet(applicant.name, name)}
    displaced: Mapping[str, ProducerClaim] = {}
    topic_epoch = 0
    if applicant.exclusive:
        last = _last_topic_epoch(claims, applicant)
        if applicant.mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            displaced = beside
        elif beside.keys() == {applicant.name} and last and applicant.topic_epoch == last:
            displaced = beside  # its own former claim, from a connection that is not known to have ended
        elif beside:
            raise errors.ProducerExcluded(
                f"{applicant.mode.value} producer {applicant.producer} of {claims.topic}: {_names(beside)} is there"
            )
        living = {name: claim for name, claim in living.items() if name not in displaced}
        epoch = claims.epoch + 1
        former = applicant.topic_epoch
        topic_epoch = former if former is not None and last <= former < epoch else epoch
        topic_epochs = _with_topic_epoch(claims, applicant, topic_epoch)
        claims = replace(claims, epoch=epoch, exclusive_epoch=epoch, topic_epochs=topic_epochs)
    else:
        _check_room_for_shared(claims, applicant, beside)
        if applicant.own_epoch:
            claims = replace(claims, epoch=claims.epoch + 1)
    own = ProducerClaim(applicant.session, applicant.process, applicant.deadline_ms, applicant.exclusive, claims.epoch)
    return ProducerAdmission(replace(claims, claims={**living, applicant.name: own}), own, displaced, topic_epoch)


def _last_topic_epoch(claims: ProducerClaims, applicant: Applicant) -> int:
    """The last topic epoch of the partition, or of all partitions. Raises ProducerOvertaken."""
    partition, epochs = claimant(applicant.name)[1], claims.topic_epochs
    met = epochs.values() if partition is None else (epochs.get(_WHOLE, 0), epochs.get(str(partition), 0))
    last = max(met, default=0)
    if applicant.topic_epoch is not None and applicant.topic_epoch < last:
        raise errors.ProducerOvertaken(
            f"{applicant.mode.value} producer {applicant.producer} of {claims.topic} had it in epoch"
            f" {applicant.topic_epoch}, and another one has had it since, in epoch {last}"
        )
    return last


def _with_topic_epoch(claims: ProducerClaims, applicant: Applicant, topic_epoch: int) -> Mapping[str, int]:
    partition = claimant(applicant.name)[1]
    if partition is None:
        return {_WHOLE: topic_epoch}  # none of a partition is higher
    return {**claims.topic_epochs, str(partition): topic_epoch}


def _meet(name: str, other: str) -> bool:
    """Whether two producers send to one partition."""
    partition, others = claimant(name)[1], claimant(other)[1]
    return partition is None or others is None or partition == others


def _check_room_for_shared(claims: ProducerClaims, applicant: Applicant, beside: Mapping[str, ProducerClaim]) -> None:
    holders = {name: claim for name, claim in beside.items() if claim.exclusive}
    if holders:
        raise errors.ProducerNameTaken(f"{_names(holders)} has {claims.topic} exclusively")
    name = applicant.producer
    if not name.startswith("*") and any(claimant(other)[0] == name for other in beside):
        raise errors.ProducerNameTaken(f"a producer named {name} is on {claims.topic} already")


def renewed(claims: ProducerClaims, name: str) -> ProducerClaims:
    """The claim of `name` with an epoch that no producer of the topic has or had."""
    epoch = claims.epoch + 1
    return replace(claims, epoch=epoch, claims={**claims.claims, name: replace(claims.claims[name], epoch=epoch)})


def dismiss(claims: ProducerClaims, name: str, session: str) -> ProducerClaims:
    """The claims without this one; the same object when it is not (or no longer) this session's."""
    claim = claims.claims.get(name)
    if claim is None or claim.session != session:
        return claims
    return replace(claims, claims={other: kept for other, kept in claims.claims.items() if other != name})


def stands(claims: ProducerClaims, name: str, own: ProducerClaim) -> bool:
    """Whether `own` is still admitted, so that no other producer can have voided its records."""
    claim = claims.claims.get(name)
    return claim is not None and claim.session == own.session and claim.epoch == own.epoch


def _names(claims: Mapping[str, ProducerClaim]) -> str:
    shown = [f"{claimant(name)[0]} ({claim.process})" for name, claim in list(claims.items())[:3]]
    return "producer " + ", ".join(shown) + (f" and {len(claims) - 3} more" if len(claims) > 3 else "")
