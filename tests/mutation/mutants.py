"""Mutants of a module: each is its source with one small change, such as `<` for `<=` or a statement left out."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


class Mutant(NamedTuple):
    line: int
    was: str
    becomes: str
    source: str
    """The whole module's."""


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of this module, in the order of its lines. Annotations, strings, log calls and what a module does
    when it is imported stay as they are."""
    lines = source.splitlines(keepends=True)
    for node in _behaviour(ast.parse(source)):
        for changed in _changes(node):
            was, becomes = ast.unparse(node), ast.unparse(changed)
            text = becomes if isinstance(changed, ast.stmt) else f"({becomes})"
            yield Mutant(node.lineno, was, becomes, _replaced(lines, node, text))


def _behaviour(module: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """Expressions and statements of the module's functions."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(each) for function in functions for child in function.body for each in ast.walk(child)}
    for function in functions:
        if id(function) not in inner:
            for statement in function.body:
                yield from _inside(statement)


def _inside(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if _is_log_call(node) or isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "args" if isinstance(node, ast.FunctionDef) else ""):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _inside(child)


def _is_log_call(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else node
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in ("_log", "logging")
    )


def _changes(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    match node:
        case ast.Compare(ops=[one]) if type(one) in _COMPARISONS:
            yield _with(node, ops=[_COMPARISONS[type(one)]()])
        case ast.BoolOp(op=ast.And()):
            yield _with(node, op=ast.Or())
        case ast.BoolOp():
            yield _with(node, op=ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OPERATORS:
            yield _with(node, op=_OPERATORS[type(op)]())
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield ast.Pass()
        case ast.Continue() | ast.Break():
            yield ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.expr | ast.stmt:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    assert isinstance(changed, ast.expr | ast.stmt)
    return changed


def _replaced(lines: list[str], node: ast.expr | ast.stmt, text: str) -> str:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    head, tail = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    return "".join([*lines[: node.lineno - 1], head, text, tail, *lines[node.end_lineno :]])
