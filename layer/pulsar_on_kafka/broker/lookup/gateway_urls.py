"""URLs of the gateways of a cluster: of their binary protocol, and of their REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pulsar_on_kafka.base import errors

PLAIN: Final = "pulsar"
TLS: Final = "pulsar+ssl"
_SCHEMES: Final = (PLAIN, TLS, "http", "https")


class GatewayUrls(NamedTuple):
    """One URL of each kind, for a client; '' for a kind without a gateway."""

    plain: str = ""
    tls: str = ""
    web: str = ""

    @property
    def serves(self) -> bool:
        """Whether a gateway is known."""
        return bool(self.plain or self.tls)

    def lookup_data(self) -> dict[str, str | None]:
        """The fields of Pulsar's LookupData, with which REST replies to lookups."""
        plain_web = self.web.startswith("http:")
        return {
            "brokerUrl": self.plain or None,
            "brokerUrlTls": self.tls or None,
            "httpUrl": self.web if plain_web else None,
            "httpUrlTls": None if plain_web else self.web or None,
            "nativeUrl": self.plain or None,
        }


def check_gateways(urls: Sequence[str]) -> None:
    """Raises InvalidOption for what is no URL of a gateway."""
    for url in urls:
        if not _is_url(url):
            raise errors.InvalidOption(
                f"a gateway is named by {', '.join(f'{scheme}://host:port' for scheme in _SCHEMES)}, got {url!r:.200}"
            )


def chosen_urls(urls: Sequence[str], turn: int = 0) -> GatewayUrls:
    """The URL number `turn`, in a circle, of each kind: clients spread over several gateways, and retry another one."""
    by_scheme: dict[str, list[str]] = {}
    for url in urls:
        by_scheme.setdefault(urlsplit(url).scheme, []).append(url)

    def one(*schemes: str) -> str:
        found = [url for scheme in schemes for url in by_scheme.get(scheme, ())]
        return found[turn % len(found)] if found else ""

    return GatewayUrls(one(PLAIN), one(TLS), one("http", "https"))


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        complete = parts.hostname and parts.port
    except ValueError:
        return False
    return bool(complete) and parts.scheme in _SCHEMES and not (parts.path.strip("/") or parts.query or parts.username)
