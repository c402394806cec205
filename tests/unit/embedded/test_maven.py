"""Jars from a Maven repository: a small one on this machine, which can be told to misbehave."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.errors import DownloadFailed
from pulsar_on_kafka.embedded.maven import fetch
from pulsar_on_kafka.embedded.settings import silent


@dataclass
class Repository:
    """Its address, and the files by their paths."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, path: str, content: bytes) -> None:
        self.files[path] = content
        self.files[f"{path}.sha1"] = hashlib.sha1(content, usedforsecurity=False).hexdigest().encode()

    def publish(self, coordinate: str, *needs: str, managed: str = "") -> None:
        """A POM and a jar; `needs` and `managed` are `group:name:version`."""
        group, name, version = coordinate.split(":")
        folder = f"{group.replace('.', '/')}/{name}/{version}/{name}-{version}"
        management = f"<dependencyManagement>{_dependencies(managed)}</dependencyManagement>" if managed else ""
        pom = (
            f"<project><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"{management}{_dependencies(*needs)}</project>"
        )
        self.add(f"{folder}.pom", pom.encode())
        self.add(f"{folder}.jar", f"the jar of {coordinate}".encode())


def _dependencies(*coordinates: str) -> str:
    return f"<dependencies>{''.join(map(_dependency, coordinates))}</dependencies>"


def _dependency(coordinate: str) -> str:
    group, name, version = coordinate.split(":")
    told = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{told}</dependency>"


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    found = Repository()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = found.files.get(self.path[1:])
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        found.address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("POK_MAVEN_REPOSITORY", f"{found.address}/")
        found.publish("org.broker:server:1.0", "org.broker:clients:1.0", "org.else:codec:3")
        found.publish("org.broker:clients:1.0")
        found.publish("org.else:codec:3")
        found.publish("org.log:logging:2.0", managed="org.broker:clients:0.9")
        found.publish("org.broker:clients:0.9")
        found.publish("org.broker:tools:1.0", "org.broker:nobody:1.0")
        yield found
        server.shutdown()
        serving.join()


def names(folder: Path) -> list[str]:
    (folder / "libs").mkdir()
    fetch(
        ["org.broker:server:1.0", "org.log:logging:2.0"],
        ["org.broker:tools:1.0"],
        folder / "libs",
        folder / "work",
        silent,
    )
    return sorted(jar.name for jar in (folder / "libs").iterdir())


ALL = ["clients-1.0.jar", "codec-3.jar", "logging-2.0.jar", "server-1.0.jar", "tools-1.0.jar"]


@pytest.mark.usefixtures("repository")
def test_what_is_asked_for_comes_with_what_it_needs(tmp_path: Path) -> None:
    """The versions that logging's POM manages are its own affair: it is no BOM."""
    assert names(tmp_path) == ALL
    assert (tmp_path / "libs" / "clients-1.0.jar").read_bytes() == b"the jar of org.broker:clients:1.0"


def test_jars_without_dependencies_need_no_pom(repository: Repository, tmp_path: Path) -> None:
    repository.files = {path: content for path, content in repository.files.items() if ".pom" not in path}
    (tmp_path / "libs").mkdir()
    repository.add("org/broker/tools/1.0/tools-1.0-tests.jar", b"with a classifier")
    alone = ["org.broker:tools:1.0", "org.broker:tools:jar:tests:1.0"]
    news: list[str] = []
    fetch([], alone, tmp_path / "libs", tmp_path / "work", news.append)
    assert sorted(jar.name for jar in (tmp_path / "libs").iterdir()) == ["tools-1.0-tests.jar", "tools-1.0.jar"]
    assert news == ["  1 of 2 jars, 0 MB", "  2 of 2 jars, 0 MB"]


@pytest.mark.parametrize("path", ["org/else/codec/3/codec-3.jar", "org/else/codec/3/codec-3.pom"])
def test_other_bytes_than_the_repository_vouches_for_are_refused(
    path: str, repository: Repository, tmp_path: Path
) -> None:
    repository.files[path] += b" "
    with pytest.raises(DownloadFailed, match=r"codec-3\.(jar|pom) has the SHA-1 \w{40}, and by its repository \w{40}"):
        names(tmp_path)


def test_a_sum_with_the_file_s_name_behind_it_will_do(repository: Repository, tmp_path: Path) -> None:
    repository.files["org/else/codec/3/codec-3.jar.sha1"] += b"  codec-3.jar\n"
    assert names(tmp_path) == ALL


@pytest.mark.parametrize("suffix", ["jar", "jar.sha1", "pom", "pom.sha1"])
def test_a_file_that_is_not_there_ends_the_download(suffix: str, repository: Repository, tmp_path: Path) -> None:
    """jgo by itself goes on without a POM, and so without what it names, and without a sum."""
    del repository.files[f"org/else/codec/3/codec-3.{suffix}"]
    with pytest.raises(DownloadFailed, match=r"codec-3\.(jar|pom) cannot be had: the repository replied 404 Not Found"):
        names(tmp_path)


def test_an_empty_sum_is_none(repository: Repository, tmp_path: Path) -> None:
    repository.files["org/else/codec/3/codec-3.jar.sha1"] = b"\n"
    with pytest.raises(DownloadFailed, match="and by its repository none"):
        names(tmp_path)


def test_nobody_there_is_told_without_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POK_MAVEN_REPOSITORY", "http://me:secret@127.0.0.1:1/repository")
    with pytest.raises(
        DownloadFailed, match=r"server-1\.0\.pom cannot be had: Failed to establish .*refused"
    ) as failure:
        names(tmp_path)
    assert "secret" not in str(failure.value)


def test_what_is_no_address_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POK_MAVEN_REPOSITORY", "mirror.example")
    with pytest.raises(DownloadFailed, match=r"POK_MAVEN_REPOSITORY=mirror\.example"):
        names(tmp_path)
