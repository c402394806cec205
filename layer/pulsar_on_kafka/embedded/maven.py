"""Jars of a Maven repository, resolved by jgo, which needs neither Java nor Maven.

jgo only warns of a wrong checksum, and continues without a jar that a POM names and the repository lacks. Here both end
the download.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import Final

import requests
from jgo.maven import Artifact, MavenContext, PythonResolver
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from pulsar_on_kafka.embedded.errors import DownloadFailed
from pulsar_on_kafka.embedded.settings import Progress

REPOSITORY_VARIABLE: Final = "POK_MAVEN_REPOSITORY"
"""The address of a mirror that replaces Maven Central."""
_TIMEOUT_S: Final = 30.0
_AT_ONCE: Final = 8
_RETRIES: Final = Retry(total=4, connect=2, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504))
_CHUNK_BYTES: Final = 1 << 16
_NEWS: Final = 4  # of how far it is


def fetch(with_dependencies: Iterable[str], alone: Iterable[str], into: Path, work: Path, progress: Progress) -> None:
    """Put jars into a directory.

    Args:
        with_dependencies: coordinates `group:name:version` of what comes with all that it needs at run time.
        alone: coordinates `group:name:version`, or `group:name:jar:classifier:version`, of what comes alone.
        work: a directory for what is only needed on the way.

    Raises:
        DownloadFailed: the repository cannot be reached, lacks a file or its checksum, or sent other bytes.
    """
    with requests.Session() as session:
        resolver = _Checked(session)
        context = MavenContext(resolver, work / "repository", [], {"repository": resolver.repository})
        # Raw: jgo takes what is not for a BOM, and log4j's POM manages the version of kafka-clients.
        roots = [context.create_dependency(f"{each}!") for each in with_dependencies]
        resolved = [dependency for part in resolver.resolve(roots) for dependency in part] if roots else []
        requested = [*resolved, *map(context.create_dependency, alone)]
        for jar in _downloaded([each.artifact for each in requested], progress):
            jar.rename(into / jar.name)


def _downloaded(artifacts: Sequence[Artifact], progress: Progress) -> Iterator[Path]:
    total, size = len(artifacts), 0
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pok-jars") as pool:
        jars = [pool.submit(each.resolve) for each in artifacts]
        try:
            for done, future in enumerate(as_completed(jars), start=1):
                jar = future.result()
                size += jar.stat().st_size
                if done * _NEWS // total > (done - 1) * _NEWS // total:
                    progress(f"  {done} of {total} jars, {size // 1_000_000} MB")
                yield jar
        finally:
            pool.shutdown(cancel_futures=True)


class _Checked(PythonResolver):
    """Files of one repository, each with the SHA-1 that the repository gives for it. For use from many threads."""

    def __init__(self, session: requests.Session) -> None:
        super().__init__()
        reported = os.environ.get(REPOSITORY_VARIABLE)
        if reported and not reported.startswith(("https://", "http://")):
            raise DownloadFailed(
                f"{REPOSITORY_VARIABLE}={reported}: the address of a Maven repository begins with https://"
            )
        self.repository = reported.rstrip("/") if reported else MavenContext().remote_repos["central"]
        self._session = session
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=_AT_ONCE, max_retries=_RETRIES))

    def download(self, artifact: Artifact) -> Path:
        path = f"{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
        target: Path = artifact.context.repo_cache / path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.partial")
        digest = sha1(usedforsecurity=False)
        try:
            with self._get(path) as answer, partial.open("wb") as sink:
                for chunk in answer.iter_content(_CHUNK_BYTES):
                    sink.write(chunk)
                    digest.update(chunk)
            with self._get(f"{path}.sha1") as answer:
                expected = answer.text.split()[:1]
        except requests.RequestException as error:
            raise DownloadFailed(f"{artifact.filename} cannot be had: {_short(error)}") from error
        if expected != [digest.hexdigest()]:
            raise DownloadFailed(
                f"{artifact.filename} has the SHA-1 {digest.hexdigest()}, and by its repository "
                f"{'none' if not expected else expected[0]}"
            )
        partial.rename(target)
        return target

    @contextmanager
    def _get(self, path: str) -> Iterator[requests.Response]:
        with self._session.get(f"{self.repository}/{path}", stream=True, timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            yield answer


def _short(error: requests.RequestException) -> str:
    """The error without addresses, which may contain a password: the server's message, or why no server replied."""
    if error.response is not None:
        return f"the repository replied {error.response.status_code} {error.response.reason}"
    inner = error.args[0] if error.args else error
    return re.sub(r"^(<.*?>|\w+\(.*?\)): ", "", str(getattr(inner, "reason", inner)))
