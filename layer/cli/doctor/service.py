"""Does anybody do what a cluster needs done: a service, or clients in its stead?"""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import is_over, stands_in
from pulsar_on_kafka.cli.doctor.cluster import ANSWER_S
from pulsar_on_kafka.cli.doctor.report import Finding, ok, warn
from pulsar_on_kafka.cli.shared.failure import one_line
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.ledgers.group import maintenance_group
from pulsar_on_kafka.mapping.state.instances import Instance


def check_service(admin: KafkaAdmin, instance: Instance) -> Finding:
    group = maintenance_group(instance)
    try:
        members = admin.describe_group(group, Deadline.after(ANSWER_S)).members
    except errors.LayerError as failure:
        return warn("maintenance", one_line(failure), f"grant Describe on group {group}")
    return judge_members(member.client_id for member in members if not is_over(member.client_id))


def judge_members(client_ids: Iterable[str]) -> Finding:
    """Judge the members that maintain the cluster, by their client ids."""
    there = list(client_ids)
    clients = sum(map(stands_in, there))
    services = len(there) - clients
    if services:
        return ok("maintenance", f"{services} service{'s' if services > 1 else ''}")
    if clients:
        return ok("maintenance", f"no service; {clients} client{'s' if clients > 1 else ''} in its stead")
    return ok("maintenance", "nobody now: run pok serve, or have clients that live for minutes")
