"""`python -m tests.fuzz -max_total_time=600`: bytes that make a decoder of a state topic, or of what Pulsar's
clients send, raise anything but `CorruptRecord`, or a gateway's connection raise anything at all.

Needs atheris (`pip install atheris`), which is no dependency of the project; arguments are libFuzzer's. It begins with
what 0.2.0 wrote, and what Pulsar's clients did and said (`tests.pulsar_sessions`). What it finds is printed with the
decoder's name: it becomes a case of `tests/property/test_foreign_state_records.py`, or of `tests/unit/gateway`.
`POK_FUZZ="pulsar frames,pulsar connection"` names those that are to be tried alone.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pulsar_on_kafka_mapping.errors import CorruptRecord


def main() -> None:
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        sys.exit("atheris is missing: pip install atheris")
    for loaded in [name for name in sys.modules if ".mapping" in name and not name.endswith("errors")]:
        del sys.modules[loaded]  # the package's import has loaded some, without counters
    with atheris.instrument_imports(include=["pulsar_on_kafka_mapping", "pulsar_on_kafka.gateway"]):
        values: Any = importlib.import_module("tests.state_values")
        written: Any = importlib.import_module("tests.written_by_0_2_0")
        decode_key: Callable[[bytes], object] = importlib.import_module(
            "pulsar_on_kafka_mapping.state.state_keys"
        ).decode_key
        wire: Any = importlib.import_module("tests.wire_decoders")
    decoders: dict[str, Callable[[bytes], object]] = {name: case.decode for name, case in values.VALUES.items()}
    decoders |= {"key": decode_key, **wire.DECODERS}
    names = [name for name in decoders if name in os.environ.get("POK_FUZZ", name).split(",")]

    def one(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        try:
            decoders[name](data[1:])
        except CorruptRecord:
            pass
        except BaseException:
            print(f"found: {name!r}: {data[1:]!r}", flush=True)
            raise

    with tempfile.TemporaryDirectory() as corpus:
        seeds = [*written.WRITTEN.items(), *(("key", data) for data in written.KEYS.values()), *wire.SEEDS]
        for number, (name, data) in enumerate(seed for seed in seeds if seed[0] in names):
            Path(corpus, str(number)).write_bytes(bytes((names.index(name),)) + data)
        atheris.Setup([sys.argv[0], *sys.argv[1:], corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
