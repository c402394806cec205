"""Pulsar's URLs in programs that run unchanged (`pulsar_on_kafka.as_pulsar`): one Kafka cluster stands for them all."""

from __future__ import annotations

import logging
import os
from dataclasses import MISSING, fields, replace
from typing import Final

from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.profile_file import PROFILE_VARIABLE, URL_VARIABLE, profile_file
from pulsar_on_kafka.exceptions import InvalidConfiguration

_log: Final = logging.getLogger(__name__)

_SCHEMES: Final = ("pulsar://", "pulsar+ssl://", "http://", "https://")
_OF_PULSAR: Final = (
    "authentication",
    "use_tls",
    "tls_trust_certs_file_path",
    "tls_allow_insecure_connection",
    "tls_validate_hostname",
    "tls_private_key_file_path",
    "tls_certificate_file_path",
    "listener_name",
)
"""Arguments about the way to Pulsar's brokers."""
stand_for_kafka = False
"""Whether Pulsar's URLs stand for a Kafka cluster, in this process."""


def on_kafka(options: ClientOptions) -> ClientOptions:
    """Options with the Kafka cluster in place of a Pulsar URL: that of POK_URL, else that of the profile.

    The profile is that of the options, else of POK_PROFILE, else the file's default. Login and certificates are the
    profile's; those for Pulsar's brokers are left out, and a warning says so.

    Raises:
        InvalidConfiguration: neither POK_URL nor a profile names a cluster, or the profiles cannot be read.
    """
    url = options.service_url
    if not (stand_for_kafka and isinstance(url, str) and url.startswith(_SCHEMES)):
        return options
    cluster = os.environ.get(URL_VARIABLE, "").strip() or None
    profile = options.profile or os.environ.get(PROFILE_VARIABLE, "").strip() or _default_profile()
    if cluster is None and profile is None:
        raise InvalidConfiguration(
            f"no Kafka cluster is named that stands for {url}: set the environment's {URL_VARIABLE}, or choose a "
            f"profile ({PROFILE_VARIABLE}, pok profile use)"
        )
    defaults = {each.name: each.default for each in fields(options) if each.default is not MISSING}
    without = {name: defaults[name] for name in _OF_PULSAR if getattr(options, name) != defaults[name]}
    where = cluster or f"the cluster of profile {profile}"
    _log.log(
        logging.WARNING if without else logging.INFO,
        "%s stands for %s%s", where, url, f". Not used, as it is for Pulsar: {', '.join(without)}" if without else "",
    )  # fmt: skip
    return replace(options, service_url=cluster, profile=profile, **without)


def _default_profile() -> str | None:
    if not profile_file().exists():
        return None
    from pulsar_on_kafka.client.connection.profiles import Profiles  # only here: most users have none

    with pulsar_errors():
        return Profiles().default or None
