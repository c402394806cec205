"""Command lines in documents, read as their programs would: do commands, options, targets, files and extras exist?"""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import typer
import yaml

from pulsar_on_kafka.cli.main import app
from tests.documents import ROOT

_PLACEHOLDER = re.compile(r"[A-Z_]+$|\.\.\.|[^a-z]|.*[/.:=<>]")
"""What no command is called: NAME, `...`, `orders/eu`."""


def unknown(line: str) -> str:
    """What the line names and there is not, as a command of `pok` or a target of `make`; empty if it is all there."""
    parts = line.split(" && ")
    return next((found for part in parts if (found := _unknown_to_pok(part) or _unknown_to_others(part))), "")


def _unknown_to_pok(line: str) -> str:
    """In prose `a|b` are alternatives, `[...]` what may be left out, and words in capitals stand for values."""
    words = _words(line)
    if not words or words[0] != "pok":
        return ""
    command = _program()
    context: Any = command.make_context("pok", [], resilient_parsing=True)
    options = _options(command)
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        if word == "..." and hasattr(command, "commands"):
            return ""
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            if name not in options and name not in ("-h", "--help"):
                return f"option {name} of {context.command_path}"
            takes = options.get(name)
            if takes and "=" not in word and rest:
                rest.pop(0)
        elif hasattr(command, "commands") and _PLACEHOLDER.match(word) is None:
            for name in word.split("|"):
                try:
                    _, found, _ = command.resolve_command(context, [name])
                except Exception as unknown:  # click's own, in a module that depends on typer's version
                    return str(unknown)
                if found is None:
                    return f"command {name} of {context.command_path}"
            command = found
            context = command.make_context(name, [], parent=context, resilient_parsing=True)
            options |= _options(command)
    return ""


def _unknown_to_others(line: str) -> str:
    """What there is not of `make`, `pip install` and `docker compose`."""
    words = _words(line)
    if words[:1] == ["make"]:
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return next((f"target {word}" for word in words[1:2] if word not in targets), "")
    if words[:2] == ["pip", "install"]:
        known = re.findall(r"^([a-z-]+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
        said = re.findall(r"(?:pulsar-on-kafka|\.)\[([a-z,-]+)\]", line)
        return next((f"extra {extra}" for one in said for extra in one.split(",") if extra not in known), "")
    if words[:3] == ["docker", "compose", "-f"]:
        file = ROOT / words[3]
        if not file.exists():
            return f"file {words[3]}"
        services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
        verb, *rest = words[4:]
        named = [word for word in rest if not word.startswith("-")][:1]
        if verb == "exec":
            return _missing(named, services) or _unknown_to_pok(shlex.join(rest[1:]))
        return _missing(named, services) if verb == "up" else f"verb {verb}"
    return ""


def _missing(names: list[str], services: dict[str, Any]) -> str:
    return next((f"service {name}" for name in names if name not in services), "")


def _words(line: str) -> list[str]:
    text = line if line.startswith(("docker", "pip")) else re.sub(r"\[([^\]]*)\]", r" \1 ", line)
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # an apostrophe of prose
        words = text.split()
    ends = next((at for at, word in enumerate(words) if word in ("&", "&&", ">", ";")), len(words))
    return words[:ends]


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def _options(command: Any) -> dict[str, bool]:
    """Names of options, and whether they take a value."""
    return {
        name: not getattr(parameter, "is_flag", False)
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
