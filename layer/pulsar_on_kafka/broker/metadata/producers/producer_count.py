"""The number of producers of a partition, for the limit of a policy. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from pulsar_on_kafka_mapping.state.metadata.producer_records import claimant


def producers_beside(
    joining: str,
    own: Mapping[str, int],
    others: Mapping[str, str],
    reported: Callable[[str], int],
) -> int:
    """The producers beside a new one on its partition; for one of the whole topic, on the fullest partition.

    The claim of unnamed producers of another session counts as many as the session has `reported` on the topic. It
    counts as one if that session has producers on several partitions, since a report does not name them.

    Args:
        joining: the claim's name of the new producer. A named one takes the place of its earlier self.
        own: the producers of this session, by the name of their claim.
        others: the session of each living claim of other sessions, by its name.
        reported: the number of producers that a session last reported on the topic.
    """
    found: Counter[int | None] = Counter()
    for name, count in own.items():
        if name != joining or name.startswith("*"):
            found[claimant(name)[1]] += count
    by_session: defaultdict[str, list[str]] = defaultdict(list)
    for name, session in others.items():
        by_session[session].append(name)
    for session, names in by_session.items():
        places = [claimant(name)[1] for name in names]
        found.update(places)
        if len(set(places)) == 1 and any(name.startswith("*") for name in names):
            found[places[0]] += max(0, reported(session) - len(names))
        if joining in names:
            found[claimant(joining)[1]] -= 1
    partition, whole = claimant(joining)[1], found.pop(None, 0)
    return whole + (max(found.values(), default=0) if partition is None else found[partition])
