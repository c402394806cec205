"""Settings that every command takes: the cluster, raw librdkafka options, the form of the output.

`pok --help` imports this module: what a command alone needs is imported where it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.mapping.errors import InvalidInstanceName
from pulsar_on_kafka.mapping.state.instances import Instance

if TYPE_CHECKING:
    from pulsar_on_kafka.client.values.service_info import ServiceUrl
    from pulsar_on_kafka.kafka.settings import KafkaSettings

DEFAULT_URL: Final = "kafka://localhost:9092"
CONNECT_TIMEOUT_MS: Final = 5_000
OPERATION_TIMEOUT_S: Final = 30

URL_HELP: Final = "Where the cluster is: kafka://host:port[,host:port...]."
KAFKA_CONFIG_HELP: Final = "A librdkafka option as key=value, or a file of such lines. May be repeated."
OUTPUT_HELP: Final = "For people or for programs; JSON is all that is on standard output then."
DEBUG_HELP: Final = "Show tracebacks and the log."
INSTANCE_HELP: Final = "Whose state it is, where several share the cluster who do not trust one another."


class OutputFormat(str, Enum):
    """`table` is for people and may change; `json` is for programs."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Settings:
    """`kafka_config` may hold passwords and is therefore left out of `repr`."""

    url: str = DEFAULT_URL
    kafka_config: Mapping[str, str] = field(default_factory=dict, repr=False)
    output: OutputFormat = OutputFormat.TABLE
    debug: bool = False
    instance: str = ""

    @property
    def json(self) -> bool:
        return self.output is OutputFormat.JSON

    @property
    def bootstrap(self) -> str:
        return self._address().bootstrap

    def _address(self) -> ServiceUrl:
        """Raises typer.BadParameter for a URL that is none."""
        from pulsar_on_kafka.client.values.service_info import parse_service_url

        try:
            return parse_service_url(self.url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from error

    def kafka(self) -> KafkaSettings:
        from pulsar_on_kafka.client.connection.connection import connection_security
        from pulsar_on_kafka.kafka.settings import KafkaSettings

        address, options = self._address(), dict(self.kafka_config)
        security = connection_security(tls=address.tls, kafka_protocol=options.get("security.protocol"))
        return KafkaSettings(
            address.bootstrap,
            options,
            client_id="pok",
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            security=security,
            instance=Instance(self.instance),
        )

    def overridden(
        self,
        url: str | None = None,
        kafka_config: Sequence[str] | None = None,
        output: OutputFormat | None = None,
        debug: bool = False,
        instance: str | None = None,
    ) -> Settings:
        """These settings with what was given; options of `kafka_config` are added one by one.

        Raises:
            typer.BadParameter: `read_kafka_config`; no instance can have this name.
        """
        return replace(
            self,
            url=self.url if url is None else url,
            kafka_config={**self.kafka_config, **read_kafka_config(kafka_config or ())},
            output=self.output if output is None else output,
            debug=self.debug or debug,
            instance=self.instance if instance is None else read_instance(instance),
        )


def read_instance(given: str) -> str:
    """Raises typer.BadParameter: no instance can have this name."""
    try:
        return Instance(given).name
    except InvalidInstanceName as refused:
        raise typer.BadParameter(str(refused), param_hint="--instance") from refused


def read_kafka_config(given: Sequence[str]) -> dict[str, str]:
    """Options from `key=value` and from files with a line of that form for each; later ones win.

    Raises:
        typer.BadParameter: neither, or a reserved option (the guarantees rest on those).
    """
    from pulsar_on_kafka.embedded.settings import parse_properties
    from pulsar_on_kafka.kafka.settings import KafkaSettings

    options: dict[str, str] = {}
    for item in given:
        if Path(item).is_file():
            try:
                options.update(parse_properties(Path(item).read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                raise typer.BadParameter(f"{item} cannot be read: {error}", param_hint="--kafka-config") from error
            continue
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"expected key=value or a file, got {item!r}", param_hint="--kafka-config")
        options[key.strip()] = value.strip()
    try:
        KafkaSettings("", options).check()
    except InvalidOption as refused:
        raise typer.BadParameter(str(refused), param_hint="--kafka-config") from refused
    return options


ClusterConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster-config",
        metavar="NAME:FILE|NAME:KEY=VALUE",
        help="librdkafka's options for a registered cluster, above all secrets. May be repeated.",
    ),
]


def read_cluster_config(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Options by cluster, from `NAME:KEY=VALUE` and `NAME:FILE`; later ones win.

    Raises:
        typer.BadParameter: neither, or a reserved option.
    """
    options: dict[str, dict[str, str]] = {}
    for item in given:
        # A name may hold colons, and a key none.
        name, separator, _ = item.partition("=")[0].rpartition(":")
        if not name:
            raise typer.BadParameter("expected NAME:KEY=VALUE or NAME:FILE", param_hint="--cluster-config")
        option = item[len(name) + len(separator) :]
        options.setdefault(name, {}).update(read_kafka_config([option]))
    return options
