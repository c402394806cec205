"""OAuth 2.0 client credentials: find the issuer's token endpoint, and ask it for a token.

Source: pulsar-client-cpp, lib/auth/AuthOauth2.cc (well-known configuration, then a form with grant_type, client_id,
client_secret, audience and scope).
"""

from __future__ import annotations

import base64
import binascii
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pulsar_on_kafka.base.errors import NoCredentials

_TIMEOUT_S: Final = 10.0
_LARGEST_ANSWER_BYTES: Final = 1_000_000
_DATA_URL: Final = "data:application/json;base64,"


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """`key_file` is a path, a `file:` URL or a `data:` URL; without it `client_id` and `client_secret` count."""

    issuer_url: str
    key_file: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    audience: str = ""
    scope: str = ""

    def fetch(self) -> tuple[str, float | None]:
        """A token, and for how many seconds it is good (None: the issuer does not say).

        Raises:
            NoCredentials: the key file cannot be read, or the issuer does not answer with a token.
        """
        client_id, client_secret = self._login()
        issuer = self.issuer_url.rstrip("/")
        endpoint = _answer(f"{issuer}/.well-known/openid-configuration", None).get("token_endpoint")
        if not isinstance(endpoint, str):
            raise NoCredentials(f"issuer {issuer} names no token_endpoint")
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
        form.update({name: text for name, text in (("audience", self.audience), ("scope", self.scope)) if text})
        answer = _answer(endpoint, urllib.parse.urlencode(form).encode())
        token, lasts_s = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str):
            raise NoCredentials(f"{endpoint} answered without an access_token")
        return token, float(lasts_s) if isinstance(lasts_s, (int, float)) else None

    def _login(self) -> tuple[str, str]:
        if not self.key_file:
            return self.client_id, self.client_secret
        try:
            if self.key_file.startswith(_DATA_URL):
                text = base64.b64decode(self.key_file[len(_DATA_URL) :]).decode("utf-8")
            else:
                path = self.key_file.removeprefix("file:")
                text = Path("/" + path.lstrip("/") if path.startswith("//") else path).read_text(encoding="utf-8")
            fields = json.loads(text)
            return str(fields["client_id"]), str(fields["client_secret"])
        except (OSError, binascii.Error, ValueError, KeyError, TypeError) as failure:
            reason = f"{type(failure).__name__}" if not isinstance(failure, OSError) else str(failure.strerror)
            raise NoCredentials(f"the OAuth 2.0 key file cannot be used: {reason}") from None  # the cause quotes it


def _answer(url: str, form: bytes | None) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise NoCredentials(f"OAuth 2.0: expected an http or https URL, got {url!r:.100}")
    request = urllib.request.Request(url, data=form, headers={"Accept": "application/json"})  # noqa: S310 - see above
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - see above
            answer = json.loads(response.read(_LARGEST_ANSWER_BYTES))
    except urllib.error.HTTPError as refused:
        refused.close()  # it holds the connection
        raise NoCredentials(f"{url} answered {refused.code} {refused.reason}") from refused
    except (OSError, ValueError) as failure:
        raise NoCredentials(f"{url} gave no usable answer: {type(failure).__name__}") from failure
    return answer if isinstance(answer, dict) else {}
