"""Open files: librdkafka takes 8 a group membership, and the usual soft limit of 1,024 is soon reached."""

from __future__ import annotations

import logging
import os
from typing import Final

from pulsar_on_kafka.base.forks import process_lock

_log = logging.getLogger(__name__)

WANTED_OPEN_FILES: Final = 65_536
WARN_AT: Final = 0.8

_raise_lock = process_lock()
_raised = False


def raise_open_file_limit() -> None:
    """Raise this process's soft limit of open files towards the hard one, once, up to 65,536."""
    global _raised
    with _raise_lock:
        if _raised:
            return
        _raised = True
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    requested = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < requested:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (requested, hard))
        except (OSError, ValueError) as refused:
            _log.warning("open files: the soft limit of %d could not be raised to %d: %s", soft, requested, refused)


def open_files() -> tuple[int, int] | None:
    """(open files, soft limit) of this process; None where the system does not report them."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return len(os.listdir("/proc/self/fd")), soft  # noqa: PTH208 - a count, of a directory that is no files
    except (ImportError, OSError):
        return None


def warn_when_files_run_out() -> None:
    """Log a warning from 80 % of the limit on."""
    found = open_files()
    if found is not None and found[1] > 0 and found[0] >= WARN_AT * found[1]:
        _log.warning("open files: %d of %d in use; raise the limit (ulimit -n) or open fewer subscriptions", *found)
