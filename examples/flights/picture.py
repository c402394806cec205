"""The state of acknowledgement over time, as a PNG and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from rich.text import Text

from flights.data import FlightId
from pulsar_on_kafka.admin import SubscriptionStats

NEVER = np.inf

_WAITING, _PARTLY, _DONE, _ALARM = "#eceff1", "#f6a623", "#00695c", "#c62828"
_SHADES = " ·░▒▓█"


@dataclass(frozen=True, slots=True)
class Story:
    """What is drawn. Times are seconds since the first consuming process was started."""

    partitions: Sequence[np.ndarray]
    """For each position of a partition the time from which it was durably acknowledged, or NEVER."""
    samples: Sequence[tuple[float, SubscriptionStats]]
    """What the admin client saw."""
    first_received: tuple[float, float]
    """When each of the two processes received its first message."""
    killed_at: float
    end: float
    holes: int


def acknowledged_at(partitions: Sequence[Sequence[FlightId]], durable_at: dict[FlightId, float]) -> list[np.ndarray]:
    """`Story.partitions` from the flights of each partition in their order there."""
    return [np.array([durable_at.get(flight, NEVER) for flight in flights]) for flights in partitions]


def shares(times: np.ndarray, rows: int, moments: np.ndarray) -> np.ndarray:
    """Share of acknowledged positions: `rows` buckets of neighbouring positions by `moments`."""
    buckets = np.array_split(times, max(1, min(rows, len(times))))
    return np.array(
        [np.searchsorted(np.sort(bucket), moments, side="right") / max(1, len(bucket)) for bucket in buckets]
    )


# A file ---------------------------------------------------------------------------------------------------------------


def draw(story: Story, file: Path) -> None:
    """Draws one panel: acknowledged flights over time, beside Kafka's committed offsets."""
    mpl.use("agg")
    figure = Figure(figsize=(8.3, 3.8), layout="constrained")
    axes = figure.subplots()
    times = np.sort(np.concatenate(story.partitions))
    moments = np.linspace(0, story.end, 600)
    axes.plot(moments, np.searchsorted(times, moments, side="right"), color=_DONE, lw=2.5)
    seen = [(at_s, sum(each.mark_delete + 1 for each in sample.partitions)) for at_s, sample in story.samples]
    axes.plot(*zip(*seen, strict=True), color="black", lw=2)
    axes.axhline(len(times), color=_PARTLY, lw=1.5)
    axes.axvline(story.killed_at, color=_ALARM, lw=1.5)
    axes.axvspan(story.killed_at, story.first_received[1], color=_WAITING, lw=0)
    pause_s = story.first_received[1] - story.killed_at
    left = len(times) - story.holes
    for text, (x, y), colour in (
        ("kill -9", (story.killed_at, 0.85), _ALARM),
        (f"the next process receives\nafter {pause_s:.1f} s", (story.killed_at, 0.3), "black"),
        (f"{left:,} flights acknowledged one by one", (0, 0.78), _DONE),
        (f"{story.holes:,} flights never left: they stay unacknowledged", (story.killed_at, 1.03), "#b36b00"),
        ("Kafka's committed offset stays before the first hole", (story.killed_at, 0.03), "black"),
    ):
        axes.annotate(
            text,
            (x, y * len(times)),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            fontsize=9,
        )
    axes.set_xlim(0, story.end)
    axes.set_ylim(0, len(times) * 1.12)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k" if value else "0")
    axes.set_xlabel("seconds since the first consuming process was started")
    axes.set_title(f"{len(times):,} flights on a Shared subscription, with a kill -9 midway", weight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=160)


# The terminal ---------------------------------------------------------------------------------------------------------


def terminal(story: Story, width: int = 88, rows_of_all: int = 24) -> Text:
    """Positions upwards, time to the right; the darker, the more is acknowledged."""
    text = Text()
    columns = width - 14
    moments = np.linspace(0, story.end, columns)
    whole = sum(map(len, story.partitions))
    for number, times in enumerate(story.partitions):
        if not len(times):
            continue
        grid = shares(times, max(2, round(rows_of_all * len(times) / whole)), moments)
        for row in range(len(grid) - 1, -1, -1):
            text.append(f"partition {number} " if row == len(grid) - 1 else " " * 12, style="dim")
            text.append("│", style="dim")
            for share in grid[row]:
                text.append(_shade(share), style=_style(share))
            text.append("│\n", style="dim")
        text.append(" " * 12 + "├" + "─" * columns + "┤\n", style="dim")
    kill = min(columns - 1, int(story.killed_at / story.end * columns))
    text.append(" " * (13 + kill) + "▲ kill -9\n", style="bold red")
    text.append(" " * 13 + f"0 s{f'{story.end:.0f} s':>{columns - 3}}\n", style="dim")
    text.append(" " * 13 + "█ 97 % and more of these positions are durably acknowledged, ▓▒░· less\n", style="dim")
    return text


def _shade(share: float) -> str:
    """A full block from 97 % on: one flight in forty never left."""
    if share >= 0.97:
        return _SHADES[-1]
    return _SHADES[min(len(_SHADES) - 2, int(np.ceil(share * (len(_SHADES) - 2))))]


def _style(share: float) -> str:
    return "green" if share >= 0.97 else "yellow"
