"""The doctor's report lists findings of checks, with advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """`warn` costs speed or comfort, or could not be looked at; with `fail` something will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report. `advice` is '' where nothing is to be done."""

    check: str
    status: Status
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Status.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Status.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Status.FAIL, found, advice)


def judge(check: str, good: bool, found: str, advice: str, otherwise: Status = Status.WARN) -> Finding:
    """`ok` when it is good; else `otherwise`, with the advice."""
    return ok(check, found) if good else Finding(check, otherwise, found, advice)
