"""Signatures of methods that take a table of options, as callers see them: one parameter for each option.

mkdocstrings reads the code without running it, and sees the one parameter that a method has before `@takes(...)`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from enum import Enum
from typing import Any

from griffe import Extension, Function, Parameter, ParameterKind, Parameters

_TAKES = re.compile(r"takes\((\w+)\)")
_ANNOTATED = re.compile(r"Annotated\[(.*), (?:OptionRange\(.*\)|[A-Z]+)\]")


class OptionSignatures(Extension):
    """Replaces the parameter `options` of such a method by the fields of its table."""

    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        found = [match[1] for each in func.decorators if (match := _TAKES.fullmatch(str(each.value)))]
        if found:
            table = getattr(importlib.import_module(func.module.path), found[0])
            options = [_parameter(each) for each in inspect.signature(table).parameters.values()]
            func.parameters = Parameters(func.parameters[0], *options)


def _parameter(option: inspect.Parameter) -> Parameter:
    annotation = _ANNOTATED.sub(r"\1", option.annotation)
    kind = ParameterKind(option.kind.description)
    return Parameter(option.name, annotation=annotation, kind=kind, default=_default(option.default))


def _default(value: object) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    if isinstance(value, Enum):
        return str(value)
    text = repr(value)
    return f"{type(value).__name__}()" if " object at 0x" in text else text
