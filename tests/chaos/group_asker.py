"""A process that asks about a consumer group for as long as its standard input is open, with little patience.

    python -m tests.chaos.group_asker BOOTSTRAP

Each line that it says is one answer: `yes`, or the error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.settings import KafkaSettings

GROUP = "asked-about"
_PATIENCES_S = (0.1, 0.5, 2.0)


def main(bootstrap: str) -> None:
    admin = KafkaAdmin(KafkaSettings(bootstrap).common())
    ended = threading.Event()

    def ask(question: Callable[[Deadline], object], patience_s: float) -> None:
        while not ended.is_set():
            try:
                question(Deadline.after(patience_s))
            except LayerError as refused:
                print(type(refused).__name__, flush=True)
            else:
                print("yes", flush=True)
            ended.wait(0.02)

    questions: tuple[Callable[[Deadline], object], ...] = (
        lambda deadline: admin.describe_group(GROUP, deadline),
        lambda deadline: admin.committed(GROUP, "no-such-topic", [0], deadline),
    )
    threads = [
        threading.Thread(target=ask, args=(question, patience_s), daemon=True)
        for question in questions
        for patience_s in _PATIENCES_S
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads:
        thread.join()
    admin.close()


if __name__ == "__main__":
    main(sys.argv[1])
