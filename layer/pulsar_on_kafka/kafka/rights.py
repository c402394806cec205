"""Rights of Kafka's ACLs in the words of `kafka-acls`, so that a refusal can name what would have helped."""

from __future__ import annotations

from typing import Final, NamedTuple

CLUSTER: Final = "kafka-cluster"


class Right(NamedTuple):
    """`operation` and `kind` as kafka-acls spells them: Read, DescribeConfigs; topic, group, transactional-id."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        where = "--cluster" if self.kind == "cluster" else f"--{self.kind} '{self.name}'"
        return (
            f"missing is {self.operation} on {self.kind} {self.name}; granted by: "
            f"kafka-acls --add --allow-principal User:<this client> --operation {self.operation} {where}"
        )


def on_topic(operation: str, topic: str) -> Right:
    return Right(operation, "topic", topic)


def on_group(operation: str, group: str) -> Right:
    return Right(operation, "group", group)


def on_transactional_id(operation: str, name: str) -> Right:
    return Right(operation, "transactional-id", name)


def on_cluster(operation: str) -> Right:
    return Right(operation, "cluster", CLUSTER)
