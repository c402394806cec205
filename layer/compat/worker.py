"""One side of one scenario, in a process of its own: `python -m compat.worker`, a `Job` on standard input.

What happens goes to the job's file at once, a line an event, so that it is there after a crash or a kill; the last line
is how it ended. Standard output and error are for whatever the libraries say.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pulsar_on_kafka.compat.driver import ScenarioRun, Target, not_supported
from pulsar_on_kafka.compat.history import Ending, Event
from pulsar_on_kafka.compat.java import JavaAddress
from pulsar_on_kafka.compat.scenario import Scenario, load


@dataclass(frozen=True, slots=True)
class Job:
    """A job for a worker. The target's options may hold secrets, so a job goes through a pipe."""

    scenario: str
    target: Target
    unique: str
    result: str
    folders: list[str]
    java: JavaAddress | None = None
    """Where the JVM is, when the Java client drives this side."""


def main() -> int:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    scenarios = load(Path(folder) for folder in job.folders)
    with Path(job.result).open("w", encoding="utf-8") as sink:

        def write(line: dict[str, Any]) -> None:
            sink.write(json.dumps(line, ensure_ascii=False) + "\n")
            sink.flush()

        write(_play(scenarios[job.scenario], job, lambda event: write({"what": event.what, "value": event.value})))
    # What a library's own threads do at the interpreter's end is not what the scenario is about.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _play(scenario: Scenario, job: Job, heard: Callable[[Event], None]) -> dict[str, Any]:
    done: dict[str, Any] = {"ending": Ending.DONE.value, "reason": "", "detail": ""}
    try:
        with ScenarioRun(job.target, job.unique, heard, job.java) as run:
            done["driven_by"] = run.driven_by
            scenario.play(run)
    except Exception as error:  # whatever a scenario raises is its side's result
        missing = not_supported(error)
        if missing is not None and not job.target.has_official_clients:
            return {**done, "ending": Ending.NOT_SUPPORTED.value, "reason": missing}
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return {**done, "ending": Ending.FAILED.value, "reason": reason, "detail": traceback.format_exc()}
    return done


if __name__ == "__main__":
    sys.exit(main())
