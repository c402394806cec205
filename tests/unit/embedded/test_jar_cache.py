"""The cache of jars, with small jars and downloads that misbehave."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.errors import DownloadFailed, NoDiskSpace, NoDownloader
from pulsar_on_kafka.embedded.jar_cache import JarSet, cached, discard_if_damaged, is_complete
from pulsar_on_kafka.embedded.settings import Progress, silent

NAMES = ["server-1.0.jar", "logging-2.3.jar", *(f"other-{n}.jar" for n in range(8))]
JARS = JarSet("server-1.0", "The Server 1.0", 1, fewest=len(NAMES), needed=("server-1.0.jar", "logging-"))


def write_jars(libs: Path, names: Iterable[str] = NAMES) -> None:
    for name in names:
        with zipfile.ZipFile(libs / name, "w") as jar:
            jar.writestr("content", name * 50)


class Registry:
    """A download that counts, and does to the jars what it is told to."""

    def __init__(self, spoil: Callable[[Path], object] = lambda libs: None) -> None:
        self.fetches = 0
        self.spoil = spoil

    def __call__(self, jars: JarSet, libs: Path, work: Path, progress: Progress) -> None:
        self.fetches += 1
        write_jars(libs)
        self.spoil(libs)


def get(cache: Path, registry: Registry) -> Path:
    return cached(JARS, cache, silent, registry)


def truncate(jar: Path) -> None:
    jar.write_bytes(jar.read_bytes()[:-30])


def test_a_second_call_fetches_nothing(tmp_path: Path) -> None:
    registry = Registry()
    first, second = get(tmp_path, registry), get(tmp_path, registry)
    assert registry.fetches == 1
    assert first == second == tmp_path / "server-1.0"
    assert sorted(jar.name for jar in (second / "libs").iterdir()) == sorted(NAMES)


def test_a_missing_or_short_jar_is_fetched_again(tmp_path: Path) -> None:
    registry = Registry()
    libs = get(tmp_path, registry) / "libs"
    truncate(libs / NAMES[0])
    assert is_complete(get(tmp_path, registry))
    (libs / NAMES[5]).unlink()
    assert is_complete(get(tmp_path, registry))
    assert registry.fetches == 3


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"server-1.0.jar": 7', "null"])
def test_a_broken_manifest_is_a_broken_cache(tmp_path: Path, manifest: str) -> None:
    registry = Registry()
    (get(tmp_path, registry) / "manifest.json").write_text(manifest)
    assert is_complete(get(tmp_path, registry))
    assert registry.fetches == 2


def test_a_jar_damaged_in_its_full_size_is_found_by_reading_it(tmp_path: Path) -> None:
    registry = Registry()
    home = get(tmp_path, registry)
    assert not discard_if_damaged(home)
    jar = home / "libs" / NAMES[1]
    content = bytearray(jar.read_bytes())
    content[60] ^= 0xFF
    jar.write_bytes(content)
    assert is_complete(home)  # the sizes are right
    assert discard_if_damaged(home)
    assert not is_complete(home)
    get(tmp_path, registry)
    assert registry.fetches == 2


def test_a_half_done_download_of_a_dead_process_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / "server-1.0.partial-123" / "result" / "libs").mkdir(parents=True)
    get(tmp_path, Registry())
    assert not list(tmp_path.glob("*.partial-*"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda libs: truncate(libs / NAMES[0]),
        lambda libs: (libs / NAMES[0]).unlink(),
        lambda libs: (libs / NAMES[-1]).unlink(),
    ],
    ids=["truncated", "no server", "too few"],
)
def test_a_download_that_is_not_whole_never_becomes_the_cache(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    with pytest.raises(DownloadFailed, match="broken set of jars"):
        get(tmp_path, Registry(spoil))
    assert [entry.name for entry in tmp_path.iterdir()] == ["server-1.0.lock"]


def test_a_failure_says_what_else_can_be_done(tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise DownloadFailed("no route to host")

    with pytest.raises(DownloadFailed) as failure:
        cached(replace(JARS, otherwise="bring it along"), tmp_path, silent, refuse)
    assert str(failure.value) == (
        "The Server 1.0 could not be fetched (no route to host): check the network, name a mirror of Maven Central "
        "with POK_MAVEN_REPOSITORY, or bring it along"
    )


def test_nothing_to_fetch_with_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pulsar_on_kafka.embedded.maven", raising=False)
    monkeypatch.delattr("pulsar_on_kafka.embedded.maven", raising=False)
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(NoDownloader, match=r"The Server 1.0 is not here yet.*pip install .*\[embedded\]"):
        cached(JARS, tmp_path, silent)


def test_no_disk_is_said_before_the_download(tmp_path: Path) -> None:
    registry = Registry()
    with pytest.raises(NoDiskSpace, match="MB free"):
        cached(replace(JARS, size_mb=1 << 40), tmp_path, silent, registry)
    assert registry.fetches == 0


FETCHER = """
import sys, threading, zipfile
from pathlib import Path
from pulsar_on_kafka.embedded.jar_cache import JarSet, cached, is_complete

names, cache = sys.argv[2:], Path(sys.argv[1])

def fetch(jars, libs, work, progress):
    for name in names:
        threading.Event().wait(0.01)
        with zipfile.ZipFile(libs / name, "w") as jar:
            jar.writestr("content", name)
    print("fetched")

assert is_complete(cached(JarSet("slow", "A slow one", 1), cache, lambda line: None, fetch))
"""


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FETCHER, str(tmp_path), *NAMES]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert "".join(outputs) == "fetched\n"
