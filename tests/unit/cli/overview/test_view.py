"""What a key changes of what `pok top` shows."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin.overview.ordering import Only
from pulsar_on_kafka.cli.overview.view import HELP, KEYS, MOVES, View, split_keys
from tests.overviews import TOPIC, overview, slow, stuck, subscription

SEEN = overview(*(stuck(f"s{number}", backlog=100 - number) for number in range(10)), subscription("done"))
LINES = 4


def press(view: View, *keys: str) -> View:
    for key in keys:
        view = view.pressed(key, SEEN, LINES)
    return view


def test_keys_sort_and_the_help_names_them() -> None:
    assert {key: press(View(), key).order for key in KEYS} == dict(KEYS)
    assert len(set(KEYS.values())) == len(KEYS)
    assert all(f"{key})" in HELP or f"({key})" in HELP for key in KEYS)


def test_a_choice_moves_and_stays_within_the_lines() -> None:
    assert press(View(), "\x1b[B", "j").chosen == (TOPIC, "s2")
    assert press(View(), "j", "\x1b[A", "k").chosen == (TOPIC, "s0")
    assert press(View(), "\x1b[6~").chosen == (TOPIC, "s4")
    assert press(View(), *["\x1b[6~"] * 9).chosen == (TOPIC, "done")


def test_a_choice_stays_on_its_subscription_when_others_overtake_it() -> None:
    view = press(View(), "j")
    later = overview(stuck("s1", backlog=1), *(stuck(f"s{number}", backlog=50) for number in (0, 2, 3)))
    assert view.place(view.rows(later)) == 3
    assert view.place(view.rows(overview())) == 0


def test_the_window_follows_the_choice() -> None:
    view = View()
    assert view.window(view.rows(SEEN), LINES) == range(4)
    view = press(view, *["j"] * 7)
    assert view.window(view.rows(SEEN), LINES) == range(5, 9)
    view = press(view, *["j"] * 7)
    assert view.window(view.rows(SEEN), LINES) == range(7, 11)


def test_one_is_opened_and_left_again() -> None:
    view = press(View(), "j", "\r")
    assert view.opened == (TOPIC, "s1")
    assert press(view, "j", "o").opened == (TOPIC, "s1"), "keys of the list do nothing here"
    assert press(view, "r").look
    left = press(view, "r", "\x1b")
    assert (left.opened, left.chosen, left.look) == (None, (TOPIC, "s1"), False)


@pytest.mark.parametrize("key", ["q", "Q", "\x04"])
def test_it_ends_from_everywhere(key: str) -> None:
    assert press(View(), key).ended
    assert press(View(), "\r", key).ended


def test_nothing_to_choose_is_no_trouble() -> None:
    view = View().pressed("\r", overview(), LINES).pressed("j", overview(), LINES)
    assert (view.opened, view.chosen) == (None, None)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("jk", ["j", "k"]),
        ("\x1b[A\x1b[6~q", ["\x1b[A", "\x1b[6~", "q"]),
        ("\x1bOBx", ["\x1bOB", "x"]),
        ("\x1b", ["\x1b"]),
        ("\x1b[", ["\x1b["]),
    ],
)
def test_escape_sequences_are_one_key(typed: str, keys: list[str]) -> None:
    assert split_keys(typed) == keys


def test_f_filters_in_turn_and_the_help_names_it() -> None:
    seen = overview(stuck("hangs"), slow("lags"), stuck("left", processes=()), subscription("done"))
    view, shown = View(), []
    for _ in range(4):
        view = view.pressed("f", seen, LINES)
        shown.append([row.subscription for row in view.rows(seen)])
    assert shown[:3] == [["left"], ["hangs"], ["lags"]]
    assert len(shown[3]) == 4
    assert "f: filter" in MOVES
    assert View(only=Only.HOLES).pressed("f", seen, LINES).only is Only.ALL
