"""A profile names a cluster and the way to it, in the user's file `config.toml`. docs/profiles.md

    default = "local"

    [profiles.local]
    url = "kafka://localhost:9092"

    [profiles.prod]
    url = "kafka+ssl://kafka.example.com:9093"
    tls = { ca_file = "/etc/ssl/kafka-ca.pem" }
    sasl = { mechanism = "SCRAM-SHA-512", username = "billing", password = { command = ["pass", "kafka/billing"] } }

The file is read when a program names a profile, and by every command of `pok`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.toml import tomllib
from pulsar_on_kafka.client.connection.profile_file import profile_file
from pulsar_on_kafka.kafka.settings import KafkaSettings

COMMAND_TIMEOUT_S: Final = 60
"""The time-out of a command that returns a secret: it may prompt the user."""
MASK: Final = "***"

_SECRET: Final = re.compile(r"password|secret|token|jaas|credential|\.pem$", re.IGNORECASE)
"""Options of librdkafka whose values are never shown."""
_VARIABLE: Final = re.compile(r"\$\{(\w*)\}")
_AT: Final = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_DEFAULT: Final = re.compile(r"^default\s*=.*$", re.MULTILINE)
_NAME: Final = re.compile(r"[\w.-]+")


class Secret(msgspec.Struct, forbid_unknown_fields=True):
    """A text from elsewhere: a variable of the environment, or what a command prints."""

    env: str = ""
    command: list[str] = msgspec.field(default_factory=list)


Text = str | Secret
"""`${NAME}` in a string is the environment's."""


class Tls(msgspec.Struct, forbid_unknown_fields=True):
    """TLS to the brokers. Their names are checked unless `verify_hostname` is false."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password: Text = ""
    verify_hostname: bool = True


class Sasl(msgspec.Struct, forbid_unknown_fields=True):
    """A login. Other mechanisms are options of librdkafka, under `kafka`."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: Text
    password: Text


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a profile. `output` is for the command line alone."""

    url: str = ""
    instance: str | None = None
    output: Literal["table", "json"] | None = None
    kafka: dict[str, Text] = msgspec.field(default_factory=dict)
    tls: Tls | None = None
    sasl: Sasl | None = None


_PARTS: Final[Mapping[str, type[msgspec.Struct]]] = {"": Profile, "tls": Tls, "sasl": Sasl}


class Profiles:
    """The profiles of one file; none where there is no file."""

    def __init__(self, path: Path | None = None) -> None:
        """None: that of POK_CONFIG, else config.toml in the user's directory for `pok`.

        Raises:
            InvalidOption: it cannot be read, or is not as it should be; names file, key and what was expected.
        """
        self.path = path or profile_file()
        try:
            found = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError) as error:
            raise InvalidOption(f"{self.path} cannot be read: {error}") from error
        unknown = sorted(found.keys() - {"default", "profiles"})
        if unknown:
            raise InvalidOption(f"{self.path}: {unknown[0]} is unknown, expected default or profiles")
        self.default = self._checked(str, found.get("default", ""), "default")
        tables = self._checked(dict[str, dict[str, Any]], found.get("profiles", {}), "profiles")
        self._named = {name: self._checked(Profile, table, f"profiles.{name}") for name, table in tables.items()}
        if self.default:
            self.named(self.default, asked_by=f"{self.path}: default")

    def _checked(self, kind: Any, value: object, key: str) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as wrong:
            split = _AT.fullmatch(str(wrong))
            what, where = (split["what"], split["where"] or "") if split else (str(wrong), "")
            unknown = _UNKNOWN.fullmatch(what)
            if unknown is not None:
                known = ", ".join(_PARTS.get(where, Secret).__struct_fields__)
                where, what = f"{where}.{unknown[1]}" if where else unknown[1], f"is unknown, expected one of {known}"
            key = f"{key}.{where}" if where and not where.startswith("[") else key
            raise InvalidOption(f"{self.path}: {key}: {what[0].lower()}{what[1:]}") from None

    def names(self) -> list[str]:
        return list(self._named)

    def named(self, name: str, asked_by: str = "") -> ResolvedProfile:
        """Raises InvalidOption: there is none of that name; with those that there are."""
        if name not in self._named:
            there = ", ".join(self._named) or "none"
            who = f"{asked_by}: " if asked_by else ""
            raise InvalidOption(f"{who}profile {name!r:.100} is not in {self.path}, which has {there}")
        return ResolvedProfile(self._named[name], f"{self.path}: profiles.{name}")

    def use(self, name: str) -> None:
        """Make a profile the default: one line of the file, all else stays. Raises as `named`."""
        self.named(name)
        text = self.path.read_text(encoding="utf-8")
        table = re.search(r"^\s*\[", text, re.MULTILINE)
        head, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
        line = f'default = "{name}"'
        if _NAME.fullmatch(name) is None:
            raise InvalidOption(f"profile {name!r} cannot be the default: write it into {self.path} yourself")
        changed = _DEFAULT.sub(line, head, count=1) if _DEFAULT.search(head) else f"{line}\n{head}"
        file = self.path.resolve()  # which may be a link to where it is kept
        whole = file.with_suffix(".new")
        whole.touch(mode=file.stat().st_mode & 0o777)
        whole.write_text(changed + rest, encoding="utf-8")
        whole.replace(file)


class ResolvedProfile:
    """A profile with its texts from elsewhere. Secrets are read with the options, and never shown."""

    def __init__(self, profile: Profile, place: str) -> None:
        self._profile = profile
        self._place = place

    @property
    def url(self) -> str:
        """The URL of the cluster; '' when the profile has none."""
        return self._text(self._profile.url, "url")

    @property
    def instance(self) -> str | None:
        return self._profile.instance

    @property
    def output(self) -> str | None:
        return self._profile.output

    def kafka_config(self, *, login: bool = True, request: bool = True) -> dict[str, str]:
        """Options of librdkafka. `login` False leaves the profile's out; `request` False runs no command.

        Raises:
            InvalidOption: a secret cannot be read, or users may not set an option; names file and key.
        """
        options = self._security(login, request)
        for name, value in self._profile.kafka.items():
            options[name] = self._text(value, f"kafka.{name}", request)
        try:
            KafkaSettings("", options).check()
        except InvalidOption as refused:
            raise InvalidOption(f"{self._place}.kafka: {refused}") from refused
        return options

    def _security(self, login: bool, request: bool) -> dict[str, str]:
        tls, sasl = self._profile.tls, self._profile.sasl if login else None
        options: dict[str, str] = {}
        if tls is not None:
            given = {
                "ssl.ca.location": tls.ca_file,
                "ssl.certificate.location": tls.certificate_file,
                "ssl.key.location": tls.key_file,
                "ssl.key.password": self._text(tls.key_password, "tls.key_password", request),
            }
            options |= {name: value for name, value in given.items() if value}
            options["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_hostname else "none"
        if sasl is not None:
            options["sasl.mechanisms"] = sasl.mechanism
            options["sasl.username"] = self._text(sasl.username, "sasl.username", request)
            options["sasl.password"] = self._text(sasl.password, "sasl.password", request)
        if tls is not None or sasl is not None:
            encrypted = tls is not None or self.url.startswith("kafka+ssl://")
            options["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if encrypted else "PLAINTEXT")
        return options

    def _text(self, value: Text, key: str, request: bool = True) -> str:
        place = f"{self._place}.{key}"
        if isinstance(value, Secret):
            if bool(value.env) == bool(value.command):
                raise InvalidOption(f"{place}: expected either env or command")
            if value.env:
                return _variable(value.env, place)
            if not request:
                raise InvalidOption(f"{place}: its command is not run here")
            return _printed(value.command, place)
        return _VARIABLE.sub(lambda found: _variable(found[1], place), value)

    def shown(self) -> dict[str, object]:
        """The profile's content, by key, with `***` for secrets, and the sources of external ones."""
        profile, shown = self._profile, dict[str, object]()
        for key, value in (("url", profile.url), ("instance", profile.instance), ("output", profile.output)):
            if value:
                shown[key] = value
        for part, found in (("tls", profile.tls), ("sasl", profile.sasl)):
            if found is not None:
                shown |= {f"{part}.{key}": _shown(key, value) for key, value in msgspec.structs.asdict(found).items()}
        shown |= {f"kafka.{key}": _shown(key, value) for key, value in profile.kafka.items()}
        return {key: value for key, value in shown.items() if value != ""}


def _shown(key: str, value: object) -> object:
    if isinstance(value, Secret):
        return f"from the environment's {value.env}" if value.env else f"from the command {' '.join(value.command[:1])}"
    if isinstance(value, str) and value and _SECRET.search(key) and _VARIABLE.fullmatch(value) is None:
        return MASK
    return value


def _variable(name: str, place: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise InvalidOption(f"{place}: the environment has no {name or '${}'}") from None


def _printed(command: list[str], place: str) -> str:
    """The output of a command, without the last line's end. Its standard error is passed through."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=COMMAND_TIMEOUT_S, check=True)
    except (OSError, ValueError, subprocess.SubprocessError) as failed:
        why = f"ended with {failed.returncode}" if isinstance(failed, subprocess.CalledProcessError) else "did not run"
        if isinstance(failed, subprocess.TimeoutExpired):
            why = f"took more than {COMMAND_TIMEOUT_S} s"
        raise InvalidOption(f"{place}: the command {command[0]!r} {why}") from None
    return done.stdout.rstrip("\r\n")
