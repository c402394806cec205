"""The example of one Java program on two services, here on one gateway twice; `tests/compat` has a real Pulsar, too."""

from __future__ import annotations

from typing import Final

import pytest

from pulsar_on_kafka.gateway.server import Gateway
from tests.builds import Missing
from tests.integration.gateway.languages import java_on_both

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

PRINTED: Final = [
    "sent 6, the last sequence id is 5",
    "sent 6, the last sequence id is 5",
    "a second type of subscription: ConsumerBusyException",
    *(f"order {number}, redelivered {int(number % 3 == 0)} times" for number in range(12)),
    "sent 12, the last sequence id is 11",
    "blue: 14 17 20 23, at 1 consumer",
    "green: 13 16 19 22, at 1 consumer",
    "red: 12 15 18 21, at 1 consumer",
    f"read [{', '.join(f'order {number}' for number in range(24))}]",
    "AVRO: 1 red",
    "a schema that does not fit: IncompatibleSchemaException",
    "22 lines, no difference",
]


def test_a_java_program_does_on_the_gateway_what_it_says(gateway: Gateway) -> None:
    try:
        said = java_on_both(gateway.address(), gateway.address())
    except Missing as missing:
        pytest.skip(str(missing))
    assert said == PRINTED
