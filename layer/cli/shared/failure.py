"""A failed command is one line on standard error and exit code 1; `--debug` adds the traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pulsar_on_kafka.exceptions import Interrupted

EXIT_FAILED = 1


class CommandFailed(Exception):
    """The command line itself refuses something; the message is the line to print."""


@contextmanager
def failures(debug: bool) -> Iterator[None]:
    """Turn everything that goes wrong inside into one line and exit code 1. Usage errors pass (exit code 2)."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        # Whoever read our output has seen enough. What the interpreter flushes at exit must have somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from None
    except (KeyboardInterrupt, Exception) as error:
        if debug:
            traceback.print_exc()
        complain(one_line(error))
        raise typer.Exit(EXIT_FAILED) from error


def complain(line: str) -> None:
    typer.echo(f"pok: {line}", err=True)


def one_line(error: BaseException) -> str:
    """An exception in one line. Types are named only where the message alone would say nothing."""
    # A signal handled inside one of confluent-kafka's C calls comes out as a SystemError.
    by_signal = isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt)
    if by_signal or isinstance(error, (KeyboardInterrupt, Interrupted)):
        return "interrupted"
    # librdkafka's exceptions carry an object that knows the words.
    words = getattr(error.args[0], "str", None) if error.args else None
    text = " ".join((words() if callable(words) else str(error)).split())
    return text or type(error).__name__
