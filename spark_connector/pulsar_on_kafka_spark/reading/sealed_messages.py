"""Decrypts messages inside the JVM with data keys that the driver unwraps, or applies the option for undecryptable
ones. Source: `subscriptions.records.decryption`, which does the same for consumers.

A record's header is everything that does not change with a data key, then the record's own parameter (see
`mapping.records.encryption_header`): so the driver requests the different beginnings from Spark, unwraps each with the
private key, and gives Spark the data keys in a broadcast join. AES-GCM is `try_aes_decrypt`, whose form is vector,
ciphertext and tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka.base.errors import CryptoFailed
from pulsar_on_kafka.crypto.decryptor import Decryptor
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.encryption_header import decode_encryption
from pulsar_on_kafka_mapping.records.record_headers import ENCRYPTION
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.base.sql_text import binary, column, text
from pulsar_on_kafka_spark.reading import header_columns

SEALED: Final = "__sealed"
"""The value is encrypted, and was not opened."""
MAX_DATA_KEYS: Final = 10_000
"""The limit of one read; a producer creates one every four hours."""

_PARAM: Final = 12
_BEFORE_PARAM: Final = b"\x7a\x0c"
"""Tag and length of the parameter."""
_TAIL: Final = len(_BEFORE_PARAM) + _PARAM

DataKeys = Mapping[bytes, bytes]
"""Data keys by a header's beginning."""


def data_keys(records: Sequence[DataFrame], reader: CryptoKeyReader | None) -> DataKeys:
    """The data keys of all these records, as far as the private keys open them. Runs a job, unless there is no reader.

    Raises:
        NotReadable: more than `MAX_DATA_KEYS`.
    """
    if reader is None:
        return {}
    beginnings = reduce(DataFrame.union, (each.selectExpr(f"{_parts()[0]} as key") for each in records))
    rows = beginnings.where("key is not null").distinct().limit(MAX_DATA_KEYS + 1).collect()
    found = [bytes(row["key"]) for row in rows]
    if len(found) > MAX_DATA_KEYS:
        raise NotReadable(f"the messages have more than {MAX_DATA_KEYS} data keys; read a part of them")
    decryptor = Decryptor(reader)
    opened = {}
    for key in found:
        try:
            opened[key] = decryptor.data_key(decode_encryption(key + _BEFORE_PARAM + bytes(_PARAM)))
        except (CryptoFailed, CorruptRecord):
            continue  # what is encrypted with it is not opened
    return opened


def opened(spark: SparkSession, records: DataFrame, keys: DataKeys) -> DataFrame:
    """The records with their values in clear where a key fits, and `SEALED`."""
    sealed = f"({header_columns.has(ENCRYPTION)} and `value` is not null)"
    if not keys:
        return records.selectExpr("*", f"{sealed} as {SEALED}")
    table = spark.createDataFrame(list(keys.items()), "__data_key_of binary, __data_key binary", verifySchema=False)
    beginning, param = _parts()
    joined = records.join(F.broadcast(table), F.expr(f"{beginning} = __data_key_of"), "left")
    clear = f"if(__data_key is null, null, try_aes_decrypt(concat({param}, `value`), __data_key, 'GCM')) as __clear"
    tried = joined.selectExpr(*map(column, records.columns), clear, f"{sealed} as __was")
    return tried.selectExpr(
        *(column(name) for name in records.columns if name != "value"),
        "coalesce(__clear, `value`) as `value`",
        f"__was and __clear is null as {SEALED}",
    )


def refusal(topic: str) -> str:
    """An error, as binary, that names the message."""
    reported = (
        f"concat({text(f'the message of {topic}, partition ')}, `partition`, ', offset ', `offset`, "
        "' is encrypted and cannot be opened: cryptoKeyReader or cryptoPrivateKeyPath names the key; "
        "cryptoFailureAction=DISCARD leaves such messages out, CONSUME gives their bytes as they are')"
    )
    return f"cast(raise_error({reported}) as binary)"


def _parts() -> tuple[str, str]:
    """A header's beginning and its parameter; null where there is none, or of another form."""
    header = header_columns.value(ENCRYPTION)
    length = f"octet_length({header})"
    tail = f"substring({header}, {length} - {_TAIL - 1}, {len(_BEFORE_PARAM)})"
    ours = f"{length} > {_TAIL} and {tail} = {binary(_BEFORE_PARAM)}"
    beginning = f"if({ours}, substring({header}, 1, {length} - {_TAIL}), null)"
    return beginning, f"substring({header}, {length} - {_PARAM - 1}, {_PARAM})"
