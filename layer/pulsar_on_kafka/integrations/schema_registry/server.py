"""The registry's server answers HTTP in a thread of its own. Needs the extra `schema-registry`."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_on_kafka.base.asgi_server import Address, AsgiServer
from pulsar_on_kafka.base.http_server import ServerTls
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.integrations.schema_registry.access import RegistryAccess
from pulsar_on_kafka.integrations.schema_registry.app import FaceHolder, registry_app
from pulsar_on_kafka.integrations.schema_registry.registry_face import RegistryFace


class SchemaRegistryServer(AsgiServer):
    """Listens from when it is made until `close`; replies 500 with Confluent's 50001 until it is connected."""

    def __init__(self, host: str, port: int, tls: ServerTls, users: Mapping[str, str] | None = None) -> None:
        """`port` 0: a free one. `users` are passwords by name.

        Raises InvalidOption: others could reach it and there are no users, the port is taken, the address is not one of
            this machine's, or the certificate is none.
        """
        access = RegistryAccess.checked(host, users)
        self._holder = FaceHolder()
        app = registry_app(self._holder, access)
        super().__init__("pok-schema-registry", Address(host, port, "--schema-registry-port"), app, tls)

    def waits_for(self, failure: str) -> None:
        """Why the cluster was not reached when that was last tried."""
        self._holder.failure = failure

    def connect(self, node: Node) -> None:
        """Answer from this cluster from now on."""
        self._holder.face = RegistryFace(node)
