"""A certificate authority and what it signs, made anew for a test run, with all that Python 3.13 demands."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Identity:
    """PEM files. `both` has key and certificate in one, as Kafka's PEM key stores have."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = _named(name)
        signed = (
            _builder(self._name, self._name, self._key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, address: str | None = None, host: str | None = None) -> Identity:
        """A certificate for CN=`name`; with `address`, a server's of that IP address, and of the `host` name."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        builder = _builder(_named(name), self._name, key.public_key(), self._key.public_key())
        if address is not None:
            hosts = [] if host is None else [x509.DNSName(host)]
            alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address)), *hosts])
            builder = builder.add_extension(alternative, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files = Identity(*(self._folder / f"{name}.{kind}.pem" for kind in ("certificate", "key", "both")))
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(private)
        files.both.write_bytes(private + certificate)
        return files


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: rsa.RSAPublicKey, issuer_key: rsa.RSAPublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )
