"""What tests build of sources in the repository, once for each state of them, in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded.jar_cache import default_cache_dir

_BUILD_S: Final = 900.0


class Missing(Exception):
    """A toolchain that this machine does not have."""


def built(name: str, sources: Path, tools: Sequence[str], command: Callable[[Path], Sequence[str]]) -> Path:
    """A copy of `sources`, in which `command` was run.

    Raises:
        Missing: one of `tools` is not on the PATH.
    """
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise Missing(f"not installed: {', '.join(missing)}")
    state = hashlib.sha256()
    for file in sorted(file for file in sources.rglob("*") if file.is_file()):
        state.update(f"{file.relative_to(sources)}\0".encode() + file.read_bytes())
    out = default_cache_dir() / "programs" / f"{name}-{state.hexdigest()[:16]}"
    complete = out / "complete"
    if not complete.exists():
        shutil.copytree(sources, out, dirs_exist_ok=True)
        done = subprocess.run(command(out), capture_output=True, text=True, timeout=_BUILD_S, check=False)
        assert done.returncode == 0, f"{name} is not built: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        complete.touch()
    return out
