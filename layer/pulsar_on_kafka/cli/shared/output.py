"""Results on standard output, as a table or as JSON; news, questions and failures on standard error."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import printable
from pulsar_on_kafka.exceptions import Interrupted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
"""The exit code of a program that SIGINT ends: 128 + 2."""


class CommandFailed(Exception):
    """The command line itself refuses something; the message is the line to print."""


class CommandInterrupted(CommandFailed):
    """Ctrl-C, or SIGTERM, ended it before it was done."""


@contextmanager
def failures(debug: bool) -> Iterator[None]:
    """Turn everything that goes wrong inside into one line and exit code 1, an interruption into 130. Usage errors pass
    (exit code 2)."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        # The reader of the output has closed it. The interpreter needs a target for its flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from None
    except (KeyboardInterrupt, Exception) as error:
        if debug:
            traceback.print_exc()
        complain(one_line(error))
        raise typer.Exit(EXIT_INTERRUPTED if _is_interruption(error) else EXIT_FAILED) from error


def complain(line: str) -> None:
    typer.echo(f"pok: {line}", err=True)


def one_line(error: BaseException) -> str:
    """An exception in one line. Types are named only where the message alone would be empty or unclear."""
    if _is_interruption(error) and not isinstance(error, CommandInterrupted):
        return "interrupted"
    # librdkafka's exceptions carry an object that knows the words.
    words = getattr(error.args[0], "str", None) if error.args else None
    text = " ".join((words() if callable(words) else str(error)).split())
    return text or type(error).__name__


def _is_interruption(error: BaseException) -> bool:
    # A signal handled inside one of confluent-kafka's C calls comes out as a SystemError.
    by_signal = isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt)
    return by_signal or isinstance(error, (KeyboardInterrupt, Interrupted, CommandInterrupted))


YesOption = Annotated[bool, typer.Option("--yes", help="Do it without confirmation.")]


def confirm(plan: str, yes: bool) -> None:
    """Print the plan on standard error. Returns with `--yes`, or when the person at the terminal agrees.

    Raises:
        CommandFailed: neither.
    """
    news(f"pok will {plan}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed("nothing was done: use --yes to do it")
    try:
        agreed = typer.confirm("Do it?", err=True)
    except typer.Abort:  # Ctrl-C, or Ctrl-D
        raise CommandInterrupted("nothing was done") from None
    if not agreed:
        raise CommandFailed("nothing was done")


_PIPE_COLUMNS: Final = 1000  # no wrapping in files


def write_json(value: object) -> None:
    """One JSON value on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show_result(settings: Settings, sentence: str, result: object) -> None:
    """Print the result of a command."""
    if settings.json:
        write_json(result)
    else:
        write_line(sentence)


def show_names(settings: Settings, names: Sequence[str]) -> None:
    """One name a line, or a JSON array."""
    if settings.json:
        write_json(list(names))
    else:
        for name in names:
            write_line(printable(name))


def show_one(settings: Settings, value: object, pairs: Mapping[str, object]) -> None:
    """One thing, as a JSON value or as `show_pairs` prints it."""
    if settings.json:
        write_json(value)
    else:
        show_pairs(pairs)


def show_list(settings: Settings, value: object, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Several things of a kind, as a JSON value or as `show_table` prints them."""
    if settings.json:
        write_json(value)
    else:
        show_table(columns, rows)


def show_further_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table below others, with an empty line between; nothing where it has no rows."""
    if rows:
        write_line("")
        show_table(columns, rows)


def show_pairs(pairs: Mapping[str, object]) -> None:
    """`name  value` lines, aligned."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        write_line(f"{name:<{width}}  {cell_text(value)}")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers to the right; on a terminal long cells are folded."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    console = Console(markup=False, highlight=False, emoji=False, color_system="auto" if is_coloured() else None)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    console.print(table)


def is_coloured() -> bool:
    """Whether terminals show colours and styles: NO_COLOR is not set, or empty (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def news(line: str) -> None:
    """Prints a line for the waiting user; never part of the result."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def progress_bar(what: str, total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Calls with the number of newly finished things move a bar on standard error, if that is a terminal.

    `shown` False for none at all, as where results scroll by on the same terminal.
    """
    with _bar(what, total, shown) as (bar, task):
        yield lambda finished: bar.advance(task, finished)


@contextmanager
def progress_towards(what: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Progress for callers that report the numbers of finished and of all things."""
    with _bar(what, None, shown) as (bar, task):
        yield lambda finished, total: bar.update(task, completed=finished, total=total)


@contextmanager
def _bar(what: str, total: int | None, shown: bool) -> Iterator[tuple[Progress, TaskID]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, color_system="auto" if is_coloured() else None)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        yield bar, bar.add_task(what, total=total)


def results_scroll_by() -> bool:
    return sys.stdout.isatty()


def cell_text(value: object) -> str:
    """A value as tables show it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))
