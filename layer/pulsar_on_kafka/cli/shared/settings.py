"""Settings that every command takes: the cluster, raw librdkafka options, the form of the output.

`pok --help` imports this module: what a command alone needs is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka_mapping.errors import InvalidInstanceName, InvalidTopicName
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.instances import Instance

if TYPE_CHECKING:
    from pulsar_on_kafka.client.connection.profiles import ResolvedProfile
    from pulsar_on_kafka.kafka.settings import KafkaSettings

DEFAULT_URL: Final = "kafka://localhost:9092"
CONNECT_TIMEOUT_MS: Final = 5_000
OPERATION_TIMEOUT_S: Final = 30

URL_HELP: Final = (
    "The cluster, kafka://host:port[,host:port...]; or the source of a tenant's cluster, pok+lookup:// or pok+map://. "
    f"Default: the profile's, otherwise {DEFAULT_URL}."
)
KAFKA_CONFIG_HELP: Final = "A librdkafka option as key=value, or a file of such lines. May be repeated."
OUTPUT_HELP: Final = "For people or for programs; JSON is all that is on standard output then."
DEBUG_HELP: Final = "Show tracebacks and the log."
PROFILE_HELP: Final = "The profile of the configuration with the defaults of these options."
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
    tenant: str = ""
    """The tenant whose cluster is used where `url` is a map of tenants; '' for a command without a tenant."""

    @property
    def json(self) -> bool:
        return self.output is OutputFormat.JSON

    @property
    def bootstrap(self) -> str:
        """The cluster's servers. Raises typer.BadParameter for a URL that is none."""
        from pulsar_on_kafka.client.values.service_info import parse_service_url

        try:
            return parse_service_url(self.cluster_url()).bootstrap
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from error

    @property
    def follows_tenants(self) -> bool:
        """`url` is a map of tenants, not a cluster."""
        return self.url.startswith("pok+")

    def cluster_url(self) -> str:
        """The URL of the cluster; of the one that has the tenant, where `url` is a map of tenants.

        Raises:
            typer.BadParameter: the command has no tenant, or the URL is invalid.
            LookupFailed: no source returns the tenant's place.
        """
        if not self.follows_tenants:
            return self.url
        from pulsar_on_kafka.base.deadline import Deadline
        from pulsar_on_kafka.client.failover.tenant_connections import directory_of

        try:
            directory = directory_of(self.url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from error
        if directory is None:
            raise typer.BadParameter(f"expected pok+lookup:// or pok+map://, got {self.url}", param_hint="--url")
        if not self.tenant:
            raise typer.BadParameter(
                f"{self.url} is a map of tenants, and this command has no tenant: name the cluster, kafka://...",
                param_hint="--url",
            )
        try:
            return directory.place(self.tenant, Deadline.after(OPERATION_TIMEOUT_S)).service_url
        finally:
            directory.close()

    def leading_here(self) -> tuple[str, ...]:
        """Options that lead another `pok` to the same cluster and state; there is no secret among them."""
        where = () if self.url == DEFAULT_URL else ("--url", self.url)
        return (*where, *(("--instance", self.instance) if self.instance else ()))

    def kafka(self) -> KafkaSettings:
        """Settings of the cluster. Raises typer.BadParameter for a URL that is none."""
        from pulsar_on_kafka.client.connection.cluster_settings import NO_SECURITY, cluster_settings

        url, instance = self.cluster_url(), Instance(self.instance)
        try:
            settings = cluster_settings(
                url, self.kafka_config, NO_SECURITY, instance, connect_timeout_ms=CONNECT_TIMEOUT_MS
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from error
        return replace(settings, client_id="pok")


class KafkaConfig(Mapping[str, str]):
    """Options of librdkafka: those of a profile, which are read when the first is needed (a command may return a
    secret), and the given ones, which take precedence. Raises the errors of `request` then."""

    def __init__(self, request: Callable[[], Mapping[str, str]], reported: Mapping[str, str]) -> None:
        self._query = request
        self._given = reported
        self._all: Mapping[str, str] | None = None

    def _options(self) -> Mapping[str, str]:
        if self._all is None:
            self._all = {**self._query(), **self._given}
        return self._all

    def __getitem__(self, name: str) -> str:
        return self._options()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options())

    def __len__(self) -> int:
        return len(self._options())


def tenant_of(given: Mapping[str, object]) -> str:
    """The tenant in a command's arguments; '' where they name neither a topic nor a namespace.

    Commands about a tenant by itself use the cluster with the map of tenants.
    """
    for name in ("topic", "where", "namespace"):
        words = given.get(name)
        if isinstance(words, str) and words:
            is_namespace = name == "namespace" or (name == "where" and "://" not in words and words.count("/") == 1)
            try:
                return words.partition("/")[0] if is_namespace else TopicName.parse(words).tenant
            except InvalidTopicName:
                return ""  # the command reports the error
    return ""


@dataclass(frozen=True, slots=True)
class Given:
    """The given settings, before or after the noun; None for the others."""

    url: str | None = None
    kafka_config: Sequence[str] = field(default=(), repr=False)
    output: OutputFormat | None = None
    debug: bool = False
    instance: str | None = None
    profile: str | None = None

    def overridden(
        self,
        url: str | None = None,
        kafka_config: Sequence[str] | None = None,
        output: OutputFormat | None = None,
        debug: bool = False,
        instance: str | None = None,
        profile: str | None = None,
    ) -> Given:
        """The settings with later ones, which take precedence; options of `kafka_config` are added one by one."""
        return Given(
            url if url is not None else self.url,
            (*self.kafka_config, *(kafka_config or ())),
            output or self.output,
            self.debug or debug,
            instance if instance is not None else self.instance,
            profile if profile is not None else self.profile,
        )

    def settings(self, *, request: bool = True) -> Settings:
        """The given settings, then those of the profile, then the defaults. `request` False: no command of the profile
        is run.

        Raises:
            typer.BadParameter: `read_kafka_config`; no instance can have this name.
            InvalidOption: the profile does not exist, or is invalid.
        """
        profile = chosen_profile(self.profile)
        instance, output, reported = self.instance, self.output, read_kafka_config(self.kafka_config)
        if profile is not None:
            instance = profile.instance if instance is None else instance
            output = OutputFormat(profile.output) if output is None and profile.output is not None else output
        return Settings(
            self.url or (profile.url if profile is not None else "") or DEFAULT_URL,
            reported if profile is None else KafkaConfig(partial(profile.kafka_config, request=request), reported),
            output or OutputFormat.TABLE,
            self.debug,
            read_instance(instance or ""),
        )


def chosen_profile(named: str | None) -> ResolvedProfile | None:
    """The profile of that name, else the default one of the file; None where there is no file, or it has no default.

    Raises:
        InvalidOption: it is not there, or the file is not as it should be.
    """
    from pulsar_on_kafka.client.connection.profile_file import profile_file

    if named is None and not profile_file().exists():
        return None
    from pulsar_on_kafka.client.connection.profiles import Profiles

    profiles = Profiles()
    chosen = named or profiles.default
    return profiles.named(chosen) if chosen else None


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
    from pulsar_on_kafka.kafka.settings import KafkaSettings

    options: dict[str, str] = {}
    for item in given:
        if Path(item).is_file():
            from pulsar_on_kafka.embedded.settings import parse_properties

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
