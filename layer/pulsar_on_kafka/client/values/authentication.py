"""The official `Authentication` classes, as Kafka's logins.

AuthenticationTLS      mutual TLS; the broker sees the certificate's subject
AuthenticationBasic    SASL/PLAIN (with another mechanism in kafka_config: SCRAM)
AuthenticationToken    SASL/OAUTHBEARER
AuthenticationOauth2   SASL/OAUTHBEARER, tokens from the issuer by the client-credentials flow
AuthenticationAthenz   NotSupported: Kafka has no such login
"""

from __future__ import annotations

import base64
import binascii
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pulsar_on_kafka.base.errors import NoCredentials
from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.exceptions import InvalidConfiguration, NotSupported
from pulsar_on_kafka.kafka.security import Security, Token, TokenSource

_TIMEOUT_S: Final = 10.0
_LARGEST_ANSWER_BYTES: Final = 1_000_000
_DATA_URL: Final = "data:application/json;base64,"


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth 2.0 client credentials find the issuer's token endpoint, and request a token from it. Source:
    pulsar-client-cpp, lib/auth/AuthOauth2.cc (well-known configuration, then a form with grant_type, client_id,
    client_secret, audience and scope).

    `key_file` is a path, a `file:` URL or a `data:` URL; without it `client_id` and `client_secret` count.
    """

    issuer_url: str
    key_file: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    audience: str = ""
    scope: str = ""

    def fetch(self) -> tuple[str, float | None]:
        """A token, and its life in seconds (None: the issuer does not return it).

        Raises:
            NoCredentials: the key file cannot be read, or the issuer does not return a token.
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


_LASTS_S: Final = 10 * 365 * 86_400.0
_OPAQUE_LASTS_S: Final = 600.0


class Authentication:
    """A login by the official plugin's name. Source: `pulsar.Authentication`.

    Differs from Pulsar: nothing is loaded from libraries; known are `tls`, `token`, `basic` and `oauth2`, and the names
    of Pulsar's Java classes for them.
    """

    _security: Security

    def __init__(self, dynamicLibPath: str, authParamsString: str) -> None:  # noqa: N803 - the official names
        """Raises NotSupported for another plugin."""
        check_type(str, "dynamicLibPath", dynamicLibPath)
        _check_secret("authParamsString", authParamsString)
        kind = dynamicLibPath.rpartition(".")[2].removeprefix("Authentication").lower()
        if kind not in _PLUGINS:
            raise NotSupported(f"authentication plugin {dynamicLibPath!r}: known are {', '.join(sorted(_PLUGINS))}")
        self._security = _PLUGINS[kind](authParamsString)

    def security(self) -> Security:
        """The login as librdkafka takes it. Ours, not the official client's."""
        return self._security


class AuthenticationTLS(Authentication):
    """Mutual TLS with a PEM certificate and its key. The service URL has to be `kafka+ssl://`."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        check_type(str, "certificate_path", certificate_path)
        check_type(str, "private_key_path", private_key_path)
        self._security = _tls(certificate_path, private_key_path)


class AuthenticationToken(Authentication):
    """A token, or a function that returns one; it is called again after half of the token's life.

    The life and the owner of a JSON Web Token are read from the token; any other token of a function is assumed to last
    ten minutes.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        if isinstance(token, str):
            self._security = _bearer(TokenSource(lambda: _read_token(token, _LASTS_S), ("token", token)))
        elif callable(token):
            self._security = _bearer(TokenSource(lambda: _supplied(token), ("supplier", token)))
        else:
            raise ValueError("Argument token is expected to be of type 'str' or a function returning 'str'")


class AuthenticationBasic(Authentication):
    """A name and a password. `method` other than 'basic' is NotSupported."""

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        """`auth_params_string` is JSON with the same three fields and wins over them.

        Raises:
            InvalidConfiguration: it is no JSON object, or a field is missing.
        """
        if auth_params_string is not None:
            _check_secret("auth_params_string", auth_params_string)
            self._security = _basic_from_json(auth_params_string)
            return
        _check_secret("username", username)
        _check_secret("password", password)
        check_type(str, "method", method)
        self._security = _basic(str(username), str(password), method)


class AuthenticationOauth2(Authentication):
    """Tokens from an OAuth 2.0 issuer. `auth_params_string` is JSON with `issuer_url`, `private_key` (a file with
    `client_id` and `client_secret`, or a `data:` URL of it), and perhaps `audience` and `scope`."""

    def __init__(self, auth_params_string: str) -> None:
        """Raises InvalidConfiguration when it is no JSON object or a field is missing."""
        _check_secret("auth_params_string", auth_params_string)
        self._security = _oauth2(auth_params_string)


class AuthenticationAthenz(Authentication):
    """NotSupported: Kafka has no login by Athenz. An application that has such tokens gives them by
    `AuthenticationToken(function)`."""

    def __init__(self, auth_params_string: str) -> None:
        _check_secret("auth_params_string", auth_params_string)
        raise NotSupported("AuthenticationAthenz: Kafka has no login by Athenz; see AuthenticationToken(function)")


# Logins ---------------------------------------------------------------------------------------------------------------


def _tls(certificate_path: str, private_key_path: str) -> Security:
    return Security({"ssl.certificate.location": certificate_path, "ssl.key.location": private_key_path})


def _basic(username: str, password: str, method: str) -> Security:
    if method != "basic":
        raise NotSupported(f"AuthenticationBasic(method={method!r}): Kafka has SASL/PLAIN for 'basic' only")
    return Security({"sasl.mechanisms": "PLAIN", "sasl.username": username, "sasl.password": password})


def _basic_from_json(text: str) -> Security:
    fields = _json_object("AuthenticationBasic", text)
    username, password = (_required("AuthenticationBasic", fields, name) for name in ("username", "password"))
    return _basic(username, password, str(fields.get("method", "basic")))


def _basic_from_params(text: str) -> Security:
    if text.lstrip().startswith("{"):
        return _basic_from_json(text)
    username, separator, password = text.partition(":")
    if not separator:
        raise InvalidConfiguration("basic authentication: expected JSON or user:password")
    return _basic(username, password, "basic")


def _oauth2(text: str) -> Security:
    fields = _json_object("AuthenticationOauth2", text)
    credentials = ClientCredentials(
        issuer_url=_required("AuthenticationOauth2", fields, "issuer_url"),
        key_file=str(fields.get("private_key", "")),
        client_id=str(fields.get("client_id", "")),
        client_secret=str(fields.get("client_secret", "")),
        audience=str(fields.get("audience", "")),
        scope=str(fields.get("scope", "")),
    )
    if not credentials.key_file and not (credentials.client_id and credentials.client_secret):
        raise InvalidConfiguration("AuthenticationOauth2: private_key is missing")
    return _bearer(TokenSource(lambda: _issued(credentials), credentials))


def _token_from_params(text: str) -> Security:
    kind, separator, rest = text.partition(":")
    if separator and kind == "file":
        path = Path(rest.removeprefix("//"))
        return _bearer(TokenSource(lambda: _read_token(_file_text(path), _OPAQUE_LASTS_S), ("file", str(path))))
    token = rest if separator and kind == "token" else text
    return _bearer(TokenSource(lambda: _read_token(token, _LASTS_S), ("token", token)))


def _tls_from_params(text: str) -> Security:
    fields = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    try:
        return _tls(fields["tlsCertFile"], fields["tlsKeyFile"])
    except KeyError as missing:
        raise InvalidConfiguration(f"tls authentication: {missing.args[0]} is missing") from missing


_PLUGINS: Final[Mapping[str, Callable[[str], Security]]] = {
    "tls": _tls_from_params,
    "token": _token_from_params,
    "basic": _basic_from_params,
    "oauth2": _oauth2,
}


# Tokens ---------------------------------------------------------------------------------------------------------------


def _bearer(tokens: TokenSource) -> Security:
    return Security({"sasl.mechanisms": "OAUTHBEARER"}, tokens)


def _supplied(supplier: Callable[[], Any]) -> Token:
    token = supplier()
    if not isinstance(token, str):
        raise NoCredentials(f"the token supplier gave {type(token).__name__}, expected str")
    return _read_token(token, _OPAQUE_LASTS_S)


def _issued(credentials: ClientCredentials) -> Token:
    value, lasts_s = credentials.fetch()
    token = _read_token(value, _OPAQUE_LASTS_S)
    return token if lasts_s is None else token._replace(expires_s=time.time() + lasts_s)


def _read_token(value: str, lasts_s: float) -> Token:
    """A token, with the claims of a JSON Web Token; `lasts_s` is the default life."""
    claims = _claims(value)
    expires = claims.get("exp")
    expires_s = float(expires) if isinstance(expires, (int, float)) else time.time() + lasts_s
    return Token(value, expires_s, str(claims.get("sub", "")))


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


# Arguments that may hold secrets: no message shows their values -------------------------------------------------------


def _check_secret(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"Argument {name} is expected to be of type 'str' and not '{type(value).__name__}'")


def _json_object(what: str, text: str) -> Mapping[str, Hashable]:
    try:
        fields = json.loads(text)
    except ValueError:
        raise InvalidConfiguration(f"{what}: auth_params_string is no JSON") from None  # the cause quotes it
    if not isinstance(fields, dict):
        raise InvalidConfiguration(f"{what}: auth_params_string is expected to be a JSON object")
    return fields


def _required(what: str, fields: Mapping[str, Hashable], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidConfiguration(f"{what}: {name} is missing")
    return value


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise NoCredentials(f"the token file {path} cannot be read: {type(failure).__name__}") from failure
