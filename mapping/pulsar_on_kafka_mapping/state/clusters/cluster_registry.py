"""The registry of clusters is a record of the `namespaces` state topic: a JSON object with a format number `v`.

    {"v":1, "local":"eu", "clusters":{"us":{"service_url":"kafka://us:9092","kafka_config":{...}}}}

It holds no secrets: what is one is given to the process that connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka_mapping.errors import CorruptRecord, InvalidInstanceName
from pulsar_on_kafka_mapping.state.codecs.json_records import json_record
from pulsar_on_kafka_mapping.state.instances import Instance

DEFAULT_CLUSTER: Final = "standalone"
"""The name of a cluster to which `pok clusters local` gave none: Pulsar's default."""


@dataclass(frozen=True, slots=True)
class ClusterListener:
    """A cluster has one more address: for clients that name it, and for those in one of `networks` (CIDR)."""

    service_url: str
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of another cluster: `kafka://host:port,...` or `kafka+ssl://...`, and librdkafka's options.

    `service_url` is for clients without a matching one of `listeners`. Records of earlier versions have no listeners.
    `instance`: the instance there that this cluster's services use; '' is the one without a name. `gateways`: the URLs
    of its gateways for official clients, `pulsar://` and `pulsar+ssl://`, and of their REST, `http://` and `https://`.
    """

    service_url: str
    kafka_config: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, ClusterListener] = field(default_factory=dict)
    instance: str = ""
    gateways: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRegistry:
    """A Kafka cluster knows its own name ('' until it has one), and the others by theirs.

    Its own may be among `clusters`, too, so that one set of commands serves all of them.
    """

    local: str = ""
    clusters: Mapping[str, ClusterAddress] = field(default_factory=dict)

    @property
    def local_name(self) -> str:
        """`local`, or Pulsar's default."""
        return self.local or DEFAULT_CLUSTER

    def remote(self, name: str) -> ClusterAddress | None:
        """None where the name is not known, or this cluster's own."""
        return None if name == self.local else self.clusters.get(name)


_RECORDS: Final = json_record("registry of clusters", ClusterRegistry)

encode_clusters: Final = _RECORDS.encode


def decode_clusters(value: bytes) -> ClusterRegistry:
    """Raises CorruptRecord."""
    registry = _RECORDS.decode(value)
    try:
        for address in registry.clusters.values():
            Instance(address.instance)
    except InvalidInstanceName as error:
        raise CorruptRecord(f"registry of clusters {value[:200]!r}: {error}") from error
    return registry
