"""The state of acknowledgement over time, as a PNG and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from rich.text import Text

from flights.data import FlightId
from pulsar_on_kafka.admin import SubscriptionStats

NEVER = np.inf

_WAITING, _PARTLY, _DONE, _ALARM = "#eceff1", "#f6a623", "#00695c", "#c62828"
_COLOURS = LinearSegmentedColormap.from_list(
    "acknowledged", [(0, _WAITING), (0.4, "#fbd38d"), (0.75, _PARTLY), (0.95, "#4db6ac"), (1, _DONE)]
)
_SHADES = " ·░▒▓█"
_ROWS_OF_ALL = 720


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
    mpl.use("agg")
    partitions = [number for number, times in enumerate(story.partitions) if len(times)]
    sizes = [len(story.partitions[number]) for number in partitions]
    heights = [max(size / sum(sizes), 0.12) * 4 for size in sizes]
    figure = Figure(figsize=(12, 9.5), layout="constrained")
    grid = figure.subplots(len(partitions) + 1, 1, sharex=True, gridspec_kw={"height_ratios": [*heights, 1.2]})
    image = None
    for axes, number, size in zip(grid, partitions, sizes, strict=False):
        image = _draw_partition(axes, story, number, max(12, _ROWS_OF_ALL * size // sum(sizes)))
    grid[0].legend(loc="lower right", fontsize=8, framealpha=0.9)
    _draw_backlog(grid[-1], story)
    for axes in grid:
        _mark_the_kill(axes, story)
    grid[0].annotate(
        "kill -9",
        (story.killed_at, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        color=_ALARM,
        weight="bold",
    )
    if image is not None:
        bar = figure.colorbar(image, ax=list(grid[:-1]), pad=0.01, aspect=40)
        bar.set_label("share durably acknowledged")
        bar.ax.yaxis.set_major_formatter("{x:.0%}")
    figure.suptitle(
        f"{sum(sizes):,} flights on a Shared subscription: every acknowledgement is its own, and survives kill -9",
        weight="bold",
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def _draw_partition(axes: Axes, story: Story, number: int, rows: int) -> AxesImage:
    times = story.partitions[number]
    moments = np.linspace(0, story.end, 600)
    image = axes.imshow(
        shares(times, rows, moments),
        origin="lower",
        aspect="auto",
        extent=(0, story.end, 0, len(times)),
        cmap=_COLOURS,
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )
    seen = [(at_s, sample.partitions[number].mark_delete + 1) for at_s, sample in story.samples]
    label = "Kafka's committed offset (mark-delete): it stands before the first hole"
    axes.plot(*zip(*seen, strict=True), color="black", lw=2, clip_on=False, zorder=3, label=label)
    axes.set_ylabel(f"partition {number}\nposition", fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k" if value else "0")
    axes.tick_params(labelsize=8)
    return image


def _draw_backlog(axes: Axes, story: Story) -> None:
    axes.plot(
        [at_s for at_s, _ in story.samples],
        [sample.backlog for _, sample in story.samples],
        color=_DONE,
        marker="o",
        ms=3,
        lw=1.2,
        label="unacknowledged, as Kafka holds it (admin.subscription_stats)",
    )
    axes.axhline(story.holes, color=_PARTLY, lw=1.5, label=f"flights that never left: {story.holes:,}")
    axes.annotate(
        f"Kafka waits {story.first_received[1] - story.killed_at:.1f} s\nfor the dead process",
        ((story.killed_at + story.first_received[1]) / 2, 0.25),
        xycoords=("data", "axes fraction"),
        ha="center",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none"},
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("backlog", fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k" if value else "0")
    axes.set_xlabel("seconds since the first consuming process was started")
    axes.tick_params(labelsize=8)
    axes.legend(loc="upper right", fontsize=8)


def _mark_the_kill(axes: Axes, story: Story) -> None:
    axes.axvline(story.killed_at, color=_ALARM, lw=1.5)
    axes.axvspan(story.killed_at, story.first_received[1], facecolor="none", edgecolor="#b0bec5", hatch="//", lw=0)
    axes.set_xlim(0, story.end)


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
