"""Transaction ids as people type and read them."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    ("text", "txn"),
    [
        ("(0,3)", TxnId(0, 3)),
        (" ( 0 , 3 ) ", TxnId(0, 3)),
        ("844424930131968:5", TxnId(3 << 48, 5)),
        (f"({LARGEST},{LARGEST})", TxnId(LARGEST, LARGEST)),
    ],
)
def test_an_id_is_read_as_pulsar_prints_it_and_as_headers_have_it(text: str, txn: TxnId) -> None:
    assert TxnId.parse(text) == txn
    assert TxnId.parse(str(txn)) == txn
    assert TxnId.parse(txn.to_bytes().decode()) == txn


def test_an_id_prints_as_pulsars() -> None:
    assert f"{TxnId(3 << 48, 5)}" == "(844424930131968,5)"


@pytest.mark.parametrize("text", ["", "3", "(0,3", "(0:3)", "(-1,3)", "(0,x)", f"(0,{LARGEST + 1})", "(\u0660,3)"])
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(MappingError, match=r"expected \(most,least\) or most:least"):
        TxnId.parse(text)
