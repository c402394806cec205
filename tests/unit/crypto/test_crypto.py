"""Encryptor and Decryptor: what they make of each other's bytes, of pulsar-client's, and of bytes that were changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.errors import CryptoFailed
from pulsar_on_kafka.crypto import decryptor, encryptor
from pulsar_on_kafka.crypto.decryptor import Decryptor
from pulsar_on_kafka.crypto.encryptor import Encryptor
from pulsar_on_kafka_mapping.records.encryption_header import EncryptedKey, EncryptionInfo, decode_encryption
from pulsar_on_kafka_mapping.records.record_headers import ENCRYPTION

VECTOR = Path(__file__).with_name("pulsar_client_vector.json")


def _pem(key: Any) -> tuple[bytes, bytes]:
    return (
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


class Keys(pulsar.CryptoKeyReader):
    """Keys in memory; counts how often it is asked."""

    def __init__(self, key: Any = None) -> None:
        self.public, self.private = _pem(key or rsa.generate_private_key(public_exponent=65537, key_size=2048))
        self.asked: list[str] = []

    def get_public_key(self, key_name: str) -> tuple[bytes, Mapping[str, str]]:
        self.asked.append(f"public {key_name}")
        return self.public, {"version": "1"}

    def get_private_key(self, key_name: str, metadata: Mapping[str, str]) -> bytes:
        self.asked.append(f"private {key_name} {dict(metadata)}")
        return self.private


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys()


def test_one_data_key_serves_many_messages(keys: Keys) -> None:
    keys.asked.clear()
    seal, unseal = Encryptor(["a", "b"], keys), Decryptor(keys)
    sealed = [seal.encrypt(str(number).encode()) for number in range(100)]
    infos = [decode_encryption(header) for _, header in sealed]
    assert [unseal.decrypt(value, info) for (value, _), info in zip(sealed, infos, strict=True)] == [
        str(number).encode() for number in range(100)
    ]
    assert keys.asked == ["public a", "public b", "private a {'version': '1'}"]
    assert len({info.param for info in infos}) == 100
    assert [key.name for key in infos[0].keys] == ["a", "b"]


def test_a_copy_is_for_whoever_could_read_the_message(keys: Keys) -> None:
    value, header = Encryptor(["a", "b"], keys).encrypt(b"a secret")
    holder, info = Decryptor(keys), decode_encryption(header)
    copy, its_header = holder.encrypt_again(holder.decrypt(value, info), info)
    its_info = decode_encryption(its_header)
    assert (its_info.keys, its_info.algorithm) == (info.keys, info.algorithm)
    assert its_info.param != info.param
    assert copy != value
    assert Decryptor(keys).decrypt(copy, its_info) == b"a secret"


def test_a_copy_without_the_key_is_refused(keys: Keys) -> None:
    _, header = Encryptor(["a"], keys).encrypt(b"a secret")
    with pytest.raises(CryptoFailed, match="'a'"):
        Decryptor(Keys()).encrypt_again(b"a secret", decode_encryption(header))


def test_what_pulsar_client_encrypted_is_decrypted(tmp_path: Path) -> None:
    """Taken down from pulsar-client 3.13.0 and a real Pulsar; the key was made for it."""
    vector = json.loads(VECTOR.read_text())
    file = tmp_path / "private.pem"
    file.write_text(vector["private_key"])
    data_key, param, payload = (base64.b64decode(vector[name]) for name in ("data_key", "param", "payload"))
    info = EncryptionInfo((EncryptedKey(vector["name"], data_key, {}),), param)
    unseal = Decryptor(pulsar.CryptoKeyReader("", str(file)))
    assert unseal.decrypt(payload, info) == b"sent by pulsar-client"


@pytest.mark.parametrize("at", [0, -1])
def test_a_changed_payload_is_refused(keys: Keys, at: int) -> None:
    value, header = Encryptor(["a"], keys).encrypt(b"payload")
    changed = bytearray(value)
    changed[at] ^= 1
    with pytest.raises(CryptoFailed, match=r"'a'.*tag"):
        Decryptor(keys).decrypt(bytes(changed), decode_encryption(header))
    with pytest.raises(CryptoFailed, match="expected 12"):
        Decryptor(keys).decrypt(value, decode_encryption(header)._replace(param=b"short"))


def test_another_one_s_key_and_no_rsa_key_are_refused(keys: Keys) -> None:
    value, header = Encryptor(["a"], keys).encrypt(b"payload")
    for reader in (Keys(), Keys(ec.generate_private_key(ec.SECP256R1()))):
        with pytest.raises(CryptoFailed, match="'a'"):
            Decryptor(reader).decrypt(value, decode_encryption(header))
    with pytest.raises(CryptoFailed, match="RSA"):
        Encryptor(["a"], Keys(ec.generate_private_key(ec.SECP256R1())))


def test_a_data_key_is_replaced_in_time(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryptor, "_DATA_KEY_LASTS_S", -1.0)
    seal = Encryptor(["a"], keys)
    values = {decode_encryption(seal.encrypt(b"x")[1]).keys[0].value for _ in range(3)}
    assert len(values) == 3


def test_a_decryptor_remembers_so_many_data_keys(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decryptor, "MAX_DATA_KEYS", 2)
    unseal = Decryptor(keys)
    for _ in range(4):
        value, header = Encryptor(["a"], keys).encrypt(b"x")
        assert unseal.decrypt(value, decode_encryption(header)) == b"x"
    assert len(unseal._data_keys) == 2


def test_a_null_value_stays_null_and_the_caller_s_headers_stay_as_they_are(keys: Keys) -> None:
    calls: list[tuple[Any, ...]] = []
    produce = Encryptor(["a"], keys).over(lambda *call: calls.append(call))
    headers: list[tuple[str, Any]] = [("h", b"v")]
    produce("t", None, b"k", 0, None, None, 0, headers)
    produce("t", b"x", b"k", 0, None, None, 0, headers)
    assert calls[0] == ("t", None, b"k", 0, None, None, 0, [("h", b"v")])
    assert headers == [("h", b"v")]
    assert calls[1][1] != b"x"
    assert [name for name, _ in calls[1][7]] == ["h", ENCRYPTION]


@pytest.mark.parametrize("paths", [(None, "x"), ("x", 5)])
def test_paths_are_text(paths: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="key_path"):
        pulsar.CryptoKeyReader(*paths)


@pytest.mark.parametrize("options", [{"crypto_key_reader": "x"}, {"encryption_key": 5}])
def test_options_of_a_wrong_type_are_value_errors(options: dict[str, Any]) -> None:
    client = pulsar.Client("kafka://127.0.0.1:1")
    with pytest.raises(ValueError, match="expected"):
        client.create_producer("t", **options)
    client.close()
