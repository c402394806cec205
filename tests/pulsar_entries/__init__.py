"""What the official clients of Pulsar wrote, as a real Pulsar 4.0.7 hands it out: entries as bytes, and what the client
that wrote them read of them. `python -m tests.pulsar_entries` makes the files anew."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_LONG_BYTES: Final = 300
FIXTURES: Final = Path(__file__).parent / "fixtures"


@dataclass(frozen=True, slots=True)
class Case:
    """A topic to which one client wrote in one way. `messages` is what it read: text as text, bytes in base64, payloads
    as `payload_text`."""

    name: str
    entries: list[bytes]
    messages: list[dict[str, Any]]
    schema: dict[str, str] | None = None

    def __str__(self) -> str:
        return self.name


def cases() -> list[Case]:
    found = []
    for path in sorted(FIXTURES.glob("*.json")):
        for each in json.loads(path.read_text(encoding="utf-8")):
            entries = [base64.b64decode(entry) for entry in each["entries"]]
            found.append(Case(f"{path.stem}: {each['name']}", entries, each["messages"], each.get("schema")))
    return found


def payload_text(payload: bytes | None) -> str | None:
    """A payload in base64, a long one by its digest."""
    if payload is None:
        return None
    if len(payload) > _LONG_BYTES:
        return f"sha256:{hashlib.sha256(payload).hexdigest()}"
    return base64.b64encode(payload).decode()


def private_key() -> bytes:
    """In PEM, of what is encrypted: a key for nothing but tests."""
    vector = Path(__file__).parents[1] / "unit" / "crypto" / "pulsar_client_vector.json"
    return str(json.loads(vector.read_text(encoding="utf-8"))["private_key"]).encode()
