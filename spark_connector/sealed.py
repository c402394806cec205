"""Encrypted messages: opened inside the JVM with data keys that the driver unwraps, or what the options say for when
that cannot be done. Source: `layer.dispatch.sealed`, which does the same for consumers.

A record's header is everything that does not change with a data key, then the record's own parameter (see
`mapping.encryption`): so the driver asks Spark for the different beginnings, opens each with the private key, and gives
Spark the data keys in a broadcast join. AES-GCM is `try_aes_decrypt`, whose form is vector, ciphertext and tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layer.crypto.decryptor import Decryptor
from layer.crypto.keys import CryptoKeyReader
from layer.errors import CryptoFailed
from mapping.encryption import decode_encryption
from mapping.errors import CorruptRecord
from mapping.headers import ENCRYPTION
from spark_connector.errors import NotReadable
from spark_connector.headers import RecordHeaders

SEALED: Final = "__sealed"
"""The value is encrypted, and was not opened."""
MOST_DATA_KEYS: Final = 10_000
"""Of one read; a producer makes one every four hours."""

_PARAM: Final = 12
_BEFORE_PARAM: Final = b"\x7a\x0c"
"""Tag and length of the parameter."""
_TAIL: Final = len(_BEFORE_PARAM) + _PARAM

DataKeys = Mapping[bytes, bytes]
"""By a header's beginning."""


def data_keys(records: Sequence[DataFrame], reader: CryptoKeyReader | None) -> DataKeys:
    """The data keys of all these records, as far as the private keys open them. Runs a job, unless there is no reader.

    Raises:
        NotReadable: more than `MOST_DATA_KEYS`.
    """
    if reader is None:
        return {}
    beginnings = reduce(DataFrame.union, (each.select(_parts(each)[0].alias("key")) for each in records))
    rows = beginnings.where("key is not null").distinct().limit(MOST_DATA_KEYS + 1).collect()
    found = [bytes(row["key"]) for row in rows]
    if len(found) > MOST_DATA_KEYS:
        raise NotReadable(f"the messages have more than {MOST_DATA_KEYS} data keys; read a part of them")
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
    sealed = RecordHeaders(records["headers"]).has(ENCRYPTION) & records["value"].isNotNull()
    if not keys:
        return records.withColumn(SEALED, sealed)
    table = spark.createDataFrame(list(keys.items()), "__data_key_of binary, __data_key binary", verifySchema=False)
    beginning, param = _parts(records)
    joined = records.join(F.broadcast(table), beginning == table["__data_key_of"], "left")
    clear = F.try_aes_decrypt(F.concat(param, records["value"]), table["__data_key"], F.lit("GCM"))
    clear = F.when(table["__data_key"].isNotNull(), clear)
    tried = joined.select(*(records[name] for name in records.columns), clear.alias("__clear"), sealed.alias("__was"))
    others = [tried[name] for name in records.columns if name != "value"]
    return tried.select(
        *others,
        F.coalesce(tried["__clear"], tried["value"]).alias("value"),
        (tried["__was"] & tried["__clear"].isNull()).alias(SEALED),
    )


def refusal(records: DataFrame, topic: str) -> Column:
    """An error, as binary, that names the message."""
    said = F.concat(
        F.lit(f"the message of {topic}, partition "),
        records["partition"].cast("string"),
        F.lit(", offset "),
        records["offset"].cast("string"),
        F.lit(
            " is encrypted and cannot be opened: cryptoKeyReader names the keys; cryptoFailureAction=DISCARD leaves "
            "such messages out, CONSUME gives their bytes as they are"
        ),
    )
    return F.raise_error(said).cast("binary")


def _parts(records: DataFrame) -> tuple[Column, Column]:
    """A header's beginning and its parameter; null where there is none, or of another form."""
    header = RecordHeaders(records["headers"]).value(ENCRYPTION)
    length = F.octet_length(header)
    tail = F.substr(header, length - (_TAIL - 1), F.lit(len(_BEFORE_PARAM)))
    ours = (length > _TAIL) & (tail == F.lit(_BEFORE_PARAM))
    beginning = F.when(ours, F.substr(header, F.lit(1), length - _TAIL))
    return beginning, F.substr(header, length - (_PARAM - 1), F.lit(_PARAM))
