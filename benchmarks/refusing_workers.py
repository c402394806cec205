"""Some keys of a Key_Shared subscription with ordered redelivery fail: what the other keys get.

One consumer refuses every message of the failing keys, so all of their later messages wait. The sender is a process of
its own.
"""

from __future__ import annotations

import importlib
import time
from typing import Any, Final

from benchmarks.hung_workers import key_of, send_keys, started

_SUBSCRIPTION: Final = "refusing"
_POLL_MS: Final = 100
_PATIENCE_S: Final = 120.0
_REDELIVERY_MS: Final = 1_000


def key_shared_refusals(
    sdk: str, url: str, topic: str, messages: int, rate: int, keys: int, failing: int
) -> dict[str, Any]:
    """`rate` messages of 200 B a second with `keys` keys, of which `failing` ones fail: their messages are refused, and
    come again after a second. The figures are of the other keys."""
    module = importlib.import_module(sdk)
    client = module.Client(url)
    consumer = client.subscribe(
        topic,
        _SUBSCRIPTION,
        module.ConsumerType.KeyShared,
        initial_position=module.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=_REDELIVERY_MS,
        ordered_redelivery=True,
    )
    fails = frozenset(key_of(number, keys) for number in range(failing))
    wanted = messages - sum(key_of(number, keys) in fails for number in range(messages))
    refusals = received = 0
    sent_s = at_the_end = 0.0
    sender = started(
        send_keys, {"sdk": sdk, "url": url, "topic": topic, "messages": messages, "rate": rate, "keys": keys}
    )
    began_s = first_s = last_s = time.monotonic()
    cpu_s = time.process_time()
    while received < wanted:
        try:
            message = consumer.receive(_POLL_MS)
        except module.Timeout:
            if time.monotonic() - last_s > _PATIENCE_S:
                raise
        else:
            last_s = time.monotonic()
            if message.partition_key() in fails:
                consumer.negative_acknowledge(message)
                refusals += 1
            else:
                first_s = first_s if received else last_s
                consumer.acknowledge(message)
                received += 1
        if not sent_s and (received == wanted or not sender.is_alive()):
            sent_s, at_the_end = time.monotonic() - first_s, received
    cpu_s = time.process_time() - cpu_s
    sender.join()
    client.close()
    if sender.exitcode:
        raise RuntimeError(f"the sender ended with {sender.exitcode}")
    return {
        "others_per_s": round(at_the_end / sent_s),
        "others_share": round(at_the_end / wanted, 4),
        "cpu_us": round(cpu_s / received * 1e6, 1),
        "refusals": refusals,
        "took_s": round(last_s - began_s, 1),
    }
