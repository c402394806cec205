"""Access modes beside each other, by random histories against a plain table of who may stand beside whom."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode, Applicant, admit, dismiss, stands
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    ProducerClaim,
    ProducerClaims,
    claim_name,
    claimant,
    decode_claims,
    encode_claims,
)

TOPIC = "persistent://public/default/t"


def test_ten_thousand_histories_of_coming_going_and_dying() -> None:
    for seed in range(10_000):
        chance = random.Random(seed)
        claims = ProducerClaims(TOPIC, 7)
        living: dict[str, bool] = {}  # name -> exclusive
        newest_exclusive = 0
        standing: dict[str, ProducerClaim] = {}
        for step in range(12):
            what = chance.choice(["come", "come", "come", "go", "die"])
            name = chance.choice(["a", "b", "c", "*s"])
            if what == "die":
                living.pop(name, None)
            elif what == "go":
                claim = standing.get(name)
                claims = dismiss(claims, name, claim.session if claim else "nobody")
                if claim and stands(claims, name, claim):
                    pytest.fail(f"seed {seed}: {name} still stands")
                if claim and name in living:
                    del living[name]
            else:
                mode = chance.choice(list(AccessMode))
                exclusive = mode is not AccessMode.SHARED
                applicant = Applicant(name, mode, f"session {step}", "host:1:1", 0)
                free = (
                    mode is AccessMode.EXCLUSIVE_WITH_FENCING
                    or (exclusive and not living)
                    or (not exclusive and not any(living.values()) and (name not in living or name == "*s"))
                )
                if not free:
                    with pytest.raises(errors.ProducerExcluded if exclusive else errors.ProducerNameTaken):
                        admit(claims, applicant, lambda other, _: other in living)  # noqa: B023
                    continue
                admission = admit(claims, applicant, lambda other, _: other in living)  # noqa: B023
                if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
                    assert set(admission.displaced) == set(living)
                    living.clear()
                living[name] = exclusive
                claims = decode_claims(encode_claims(admission.claims))
                standing[name] = admission.own
                if exclusive:
                    assert admission.own.epoch > newest_exclusive
                    newest_exclusive = admission.own.epoch
                assert admission.own.epoch >= newest_exclusive  # or its own records would be void
                assert {other for other in claims.claims if stands(claims, other, standing[other])} == set(living)


@pytest.mark.parametrize("partition", [None, 0, 12])
@pytest.mark.parametrize("name", ["p", "", "*session", "p-partition-1", "p\x1f3", "p\x1f"])
def test_a_claim_names_its_producer_and_partition(name: str, partition: int | None) -> None:
    assert claimant(claim_name(name, partition)) == (name, partition)


def test_producers_of_different_partitions_have_nothing_to_do_with_each_other() -> None:
    claims = ProducerClaims(TOPIC, 7)

    def come(mode: AccessMode, partition: int | None, name: str = "p") -> Mapping[str, ProducerClaim]:
        nonlocal claims
        applicant = Applicant(claim_name(name, partition), mode, "s", "h:1:1", 0)
        admission = admit(claims, applicant, lambda *_: True)
        claims = admission.claims
        return admission.displaced

    for partition in (0, 1):
        come(AccessMode.SHARED, partition)
        for whose in (partition, None):
            with pytest.raises(errors.ProducerNameTaken, match="named p is on"):
                come(AccessMode.SHARED, whose)
            with pytest.raises(errors.ProducerExcluded, match="producer q of"):
                come(AccessMode.EXCLUSIVE, whose, "q")
    come(AccessMode.EXCLUSIVE, 2)
    with pytest.raises(errors.ProducerNameTaken, match="exclusively"):
        come(AccessMode.SHARED, None, "q")
    come(AccessMode.SHARED, 1, "q")
    assert set(come(AccessMode.EXCLUSIVE_WITH_FENCING, 1, "r")) == {claim_name("p", 1), claim_name("q", 1)}
    assert set(claims.claims) == {claim_name("p", 0), claim_name("p", 2), claim_name("r", 1)}
    assert set(come(AccessMode.EXCLUSIVE_WITH_FENCING, None)) == {
        claim_name(n, p) for n, p in (("p", 0), ("p", 2), ("r", 1))
    }


@dataclass
class Comes:
    """An exclusive producer that comes again and again."""

    partition: int | None
    topic_epoch: int | None = None
    at: int = 0
    """When it was let in last."""


def test_who_was_followed_by_another_exclusive_producer_does_not_come_again() -> None:
    for seed in range(2_000):
        chance = random.Random(seed)
        claims = ProducerClaims(TOPIC, 7)
        all_of_them: list[Comes] = []
        let_in: list[Comes] = []
        for _ in range(12):
            if not all_of_them or chance.random() < 0.4:
                all_of_them.append(Comes(chance.choice([None, 0, 1])))
            one = chance.choice(all_of_them)
            applicant = Applicant(
                claim_name("p", one.partition),
                chance.choice([AccessMode.EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING]),
                "s", "h:1:1", 0, topic_epoch=one.topic_epoch,
            )  # fmt: skip
            followed = one.topic_epoch is not None and any(
                other is not one and (None in (one.partition, other.partition) or one.partition == other.partition)
                for other in let_in[one.at + 1 :]
            )
            if followed:
                with pytest.raises(errors.ProducerOvertaken, match=f"epoch {one.topic_epoch}, and another"):
                    admit(claims, applicant, lambda *_: False)
                continue
            admission = admit(claims, applicant, lambda *_: False)
            claims = decode_claims(encode_claims(admission.claims))
            assert one.topic_epoch in (None, admission.topic_epoch)
            one.topic_epoch, one.at = admission.topic_epoch, len(let_in)
            let_in.append(one)


def test_an_exclusive_producer_takes_its_own_claim_over() -> None:
    """As when its connection broke, and the gateway has not seen it yet."""

    def applies(name: str, topic_epoch: int | None) -> Applicant:
        return Applicant(claim_name(name, 1), AccessMode.EXCLUSIVE, "s", "h:1:1", 0, topic_epoch=topic_epoch)

    first = admit(ProducerClaims(TOPIC, 7, epoch=4), applies("p", None), lambda *_: True)
    assert (first.own.epoch, first.topic_epoch) == (5, 5)
    for name, topic_epoch in (("p", None), ("q", 5), ("p", 9)):
        with pytest.raises(errors.ProducerExcluded, match="producer p "):
            admit(first.claims, applies(name, topic_epoch), lambda *_: True)
    again = admit(first.claims, applies("p", 5), lambda *_: True)
    assert (again.own.epoch, again.topic_epoch, set(again.displaced)) == (6, 5, {claim_name("p", 1)})
    assert admit(again.claims, applies("p", 5), lambda *_: True).topic_epoch == 5


def test_a_topic_epoch_that_nobody_was_told_is_none() -> None:
    """Of another cluster, or made up."""
    applicant = Applicant("p", AccessMode.EXCLUSIVE, "s", "h:1:1", 0, topic_epoch=2**64 - 1)
    assert admit(ProducerClaims(TOPIC, 7, epoch=4), applicant, lambda *_: True).topic_epoch == 5


def test_a_dismissal_of_somebody_elses_claim_changes_nothing() -> None:
    mine = admit(ProducerClaims(TOPIC, 7), Applicant("a", AccessMode.SHARED, "s1", "h:1:1", 0), lambda *_: True)
    assert dismiss(mine.claims, "a", "s2") is mine.claims
    assert dismiss(mine.claims, "a", "s1").claims == {}
