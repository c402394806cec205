"""A page's blocks run in order, in one namespace and one working folder, on a cluster.

Each page has an instance of its own, so what it says of clusters, tenants and namespaces is nobody else's; its topics
`orders` are renamed, and what is printed names them as the page does.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE
from tests.documents import COMMANDS, ROOT, Block, Command, blocks, commands, prints

_BY_OTHERS = ("make ", "pip ", "docker ", "python3 -m venv ", "kafka-acls ", "POK_BOOTSTRAP=", "python -m pytest ")
"""What other tests run, or a machine has not; `tests.command_lines` reads them."""
_PROGRAM_S = 120
_TOPIC_IN_PYTHON = re.compile(r"(?<=[\"/])orders(?=\")")
_TOPIC_IN_COMMANDS = re.compile(r"(?<![\w.-])orders(?![\w.:]|-(?!partition))")


class PageRun:
    """Where a page runs: its folder, its namespace, and what stands for its addresses and names (`instead`)."""

    def __init__(self, page: Path, place: str, folder: Path, service_url: str, instead: Mapping[str, str]) -> None:
        own = secrets.token_hex(4)
        address = service_url.removeprefix("kafka://")
        self._blocks = [block for block in blocks(page) if block.runs and (block.place == place or block.file)]
        self._folder = folder
        self._topic = f"orders-of-{re.sub('[^a-z]+', '-', page.stem.lower())}-t{own}"
        self._instead = {"localhost:9092": address, "127.0.0.1:9092": address, **instead}
        self._url = service_url
        self._instance = f"documents-{own}"
        self._environment = {
            "POK_URL": service_url,
            INSTANCE_VARIABLE: self._instance,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.namespace: dict[str, Any] = {"__name__": "page", "instead": self._instead}
        self._stack = ExitStack()
        self._wrong: list[str] = []

    def __enter__(self) -> PageRun:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        patch.chdir(self._folder)
        for name, value in self._environment.items():
            patch.setenv(name, value)
        (self._folder / "examples").symlink_to(ROOT / "examples")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for value in list(self.namespace.values()):
            if isinstance(value, pulsar.Client):
                self._stack.enter_context(suppress(pulsar.AlreadyClosed))
                self._stack.callback(value.close)
        self._stack.close()

    def run(self) -> None:
        """All blocks; what one of them prints is compared with what its page shows. The test fails with everything that
        was printed otherwise, or did not end as the page says."""
        __tracebackhide__ = True
        printed = ""
        for block in self._blocks:
            text = self._translated(block.text, block.language)
            if block.file:
                path = self._folder / block.file
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            elif block.is_output:
                self._compare(block, "", block.text, printed)
            elif block.language == "python":
                printed = self._python(block, text)
            elif block.language in COMMANDS:
                for command in commands(block):
                    printed = self._command(block, command) or printed
        if self._wrong:
            pytest.fail("\n\n".join(self._wrong), pytrace=False)

    def _translated(self, text: str, language: str = "sh") -> str:
        """In Python the topic `orders` is what a string ends with; a variable may have that name, too."""
        for said, meant in self._instead.items():
            for name, value in (("{url}", self._url), ("{topic}", self._topic), ("{instance}", self._instance)):
                meant = meant.replace(name, value)
            text = text.replace(said, meant)
        topic = _TOPIC_IN_PYTHON if language == "python" else _TOPIC_IN_COMMANDS
        return topic.sub(self._topic, text)

    def _python(self, block: Block, text: str) -> str:
        """What it prints; it may end itself."""
        code = compile("\n" * block.line + text, str(block.page), "exec")
        with redirect_stdout(StringIO()) as out, suppress(SystemExit):
            exec(code, self.namespace)  # noqa: S102
        return self._as_the_page_says(out.getvalue())

    def _command(self, block: Block, command: Command) -> str:
        line = command.line.split("  #")[0].strip()
        if line.startswith(_BY_OTHERS):
            return ""
        if line.startswith("pok standalone") and "--" not in line:
            code, printed = 0, f"Kafka is ready: {self._url}\n"
        elif re.search(r"^pok .*\b(serve|gateway)\b", line):
            code, printed = 0, self._serving(self._translated(line.removesuffix("&")))
        else:
            code, printed = self._ended(self._translated(line))
        printed = self._as_the_page_says(printed)
        if command.output is not None:
            self._compare(block, line, command.output, printed)
        refused = bool(command.output) and (command.output or "").rstrip().split("\n")[-1].startswith("pok: ")
        if (code != 0) != refused:
            self._wrong.append(f"{block.where}: {line}\nended with {code}, and printed:\n{printed}")
        return printed

    def _ended(self, line: str) -> tuple[int, str]:
        words = shlex.split(line)
        if words[0] == "pok" and not {">", "|", "&&"} & set(words):
            found = CliRunner().invoke(app, words[1:])
            if found.exception is not None and not isinstance(found.exception, SystemExit):
                raise found.exception
            return found.exit_code, found.output
        done = subprocess.run(
            ["bash", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_PROGRAM_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _serving(self, line: str) -> str:
        """A process that runs until the page ends; its first line."""
        log = self._stack.enter_context((self._folder / "serving.log").open("a"))
        process = self._stack.enter_context(
            subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE, stderr=log, text=True)
        )
        self._stack.callback(process.terminate)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, f"{line}: {(self._folder / 'serving.log').read_text(encoding='utf-8')}"
        return first

    def _as_the_page_says(self, printed: str) -> str:
        for said, meant in self._instead.items():
            printed = printed.replace(meant, said)
        return printed.replace(self._topic, "orders")

    def _compare(self, block: Block, line: str, expected: str, printed: str) -> None:
        if not prints(expected, printed):
            self._wrong.append(f"{block.where}: {line}\nis to print:\n{expected}\nand printed:\n{printed}")
