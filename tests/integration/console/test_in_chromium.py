"""The console in a real Chromium: what a person sees, clicks and types. No cluster is needed."""

from __future__ import annotations

import time

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser import NARROW, WIDTH, Chromium
from tests.consoles import Console
from tests.many_subscriptions import an_overview
from tests.waiting import until

SCHEMES = ("light", "dark")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def picked(browser: Chromium) -> list[str]:
    return browser.texts("tr.picked th a")


def names(browser: Chromium) -> list[str]:
    return browser.texts("#rows tbody th a")


@pytest.mark.long
def test_ten_thousand_subscriptions_are_filtered_sorted_and_paged(browser: Chromium, lonely: Console) -> None:
    lonely.site.show(an_overview(10_000, now_ms=now_ms()))
    browser.open(lonely.at())
    browser.sees(".chip", "all 10,000")
    assert len(names(browser)) == 100
    browser.press("/", *"orders-7 fraud")
    browser.sees(".pager", "of 11")
    assert set(names(browser)) == {"fraud"}
    assert browser.asked("return document.activeElement.id") == "filter"
    until(lambda: browser.asked("return location.search") == "?q=orders-7+fraud", "the address to say what is typed")
    browser.press(*[Keys.BACKSPACE] * len("orders-7 fraud"))
    browser.sees(".chip", "all 10,000")
    browser.click("#rows thead th:nth-child(1) a")
    browser.sees("#rows thead th[aria-sort=ascending]", "Subscription")
    assert set(names(browser)) == {"billing"}
    browser.click("a[rel=next]")
    browser.sees(".pager", "101–200 of 10,000")  # noqa: RUF001
    browser.click(".chip.unconsumed")
    browser.sees(".chip[aria-current]", "unconsumed")
    assert set(browser.texts("#rows tbody td:nth-child(10)")) == {"0"}
    browser.driver.back()  # of all this the page's address says the last
    browser.driver.forward()
    browser.sees(".chip[aria-current]", "unconsumed")


@pytest.mark.long
def test_keys_alone_lead_everywhere(browser: Chromium, lonely: Console) -> None:
    lonely.site.show(an_overview(50, now_ms=now_ms()))
    browser.open(lonely.at())
    listed = names(browser)
    browser.press("j", "j", Keys.ARROW_DOWN, "k")
    assert picked(browser) == [listed[1]]
    browser.press(Keys.ENTER)
    browser.sees("h1", listed[1])
    browser.press(Keys.ESCAPE)
    browser.sees(".chip", "all 50")
    browser.press(Keys.TAB)
    assert browser.asked("return document.activeElement.innerText") == "To the content"
    reached = []
    for _ in range(10):
        browser.press(Keys.TAB)
        reached.append(browser.asked("return document.activeElement.innerText || document.activeElement.id"))
    assert reached == [
        "pok",
        "Health",
        "Subscriptions",
        "Topics",
        "Dead letters",
        "Transactions",
        "Replication",
        "Roles",
        "filter",
        "all 50",
    ]
    browser.press("/", *"mail", Keys.ENTER)
    browser.sees("tr.picked th a", "mailer")


def test_a_page_renews_itself_and_keeps_what_is_picked(browser: Chromium, lonely: Console) -> None:
    lonely.site.show(an_overview(20, now_ms=now_ms()))
    browser.open(lonely.at())
    browser.press("j", "j")
    key = browser.asked("return document.querySelector('tr.picked').dataset.key")
    lonely.site.show(an_overview(40, now_ms=now_ms()))
    browser.sees(".chip", "all 40")
    assert browser.asked("return document.querySelector('tr.picked')?.dataset.key") == key


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_is_readable(browser: Chromium, lonely: Console, scheme: str) -> None:
    lonely.site.show(an_overview(200, now_ms=now_ms()), "no broker answers")
    browser.prefer(scheme)
    browser.open(lonely.at())
    worst = browser.asked(_CONTRASTS)
    assert len(worst) > 20
    assert min(worst.values()) >= 4.5, worst
    ground = browser.asked("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 150) is (scheme == "dark")


_CONTRASTS = """
const light = colour => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = element => {
  const colour = getComputedStyle(element).backgroundColor;
  return colour === "rgba(0, 0, 0, 0)" && element.parentElement ? ground(element.parentElement) : colour;
};
const found = {};
for (const element of document.querySelectorAll("body *")) {
  if (![...element.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
  const [one, other] = [light(getComputedStyle(element).color), light(ground(element))].sort();
  const key = `${element.tagName} ${element.className} ${element.innerText.slice(0, 20)}`;
  found[key] = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
}
return found;
"""


def test_before_the_cluster_answers_and_without_subscriptions(browser: Chromium, lonely: Console) -> None:
    lonely.site.waits_for("no broker answers (kafka:9092)")
    browser.open(lonely.at())
    browser.sees(".banner", "no broker answers (kafka:9092)")
    browser.sees(".empty", "The cluster has not replied yet.")
    lonely.site.show(an_overview(0, now_ms=now_ms()))
    browser.sees(".empty", "There are no subscriptions yet.")
    assert browser.texts(".banner") == []


def test_a_cluster_that_goes_away_leaves_its_last_data_with_their_age(browser: Chromium, lonely: Console) -> None:
    before = an_overview(30, now_ms=now_ms() - 300_000)
    lonely.site.show(before)
    browser.open(lonely.at())
    browser.sees("#age.away", "as of 5m")
    browser.sees(".banner", "These data are old.")
    lonely.site.show(before, "all brokers are down")
    browser.sees(".banner", "The cluster does not answer. all brokers are down")
    assert len(names(browser)) == 30
    browser.open(lonely.at("/transactions"))
    browser.sees(".banner", "The cluster did not answer.")


@pytest.mark.long
def test_a_command_is_copied(browser: Chromium, lonely: Console) -> None:
    lonely.site.show(an_overview(3, now_ms=now_ms()))
    browser.open(lonely.at("/replication"))
    grant = {"permission": {"name": "clipboard-read"}, "setting": "granted", "origin": lonely.url}
    browser.driver.execute_cdp_cmd("Browser.setPermission", grant)
    browser.click(".command")
    copied = "return navigator.clipboard.readText()"
    assert until(lambda: browser.asked(copied), "the copy") == "pok clusters list --url kafka://kafka.shop:9092"


def test_the_last_hour_is_drawn_with_its_gap(browser: Chromium, lonely: Console) -> None:
    for minutes in (*range(60, 30, -1), *range(20, -1, -1)):
        lonely.site.show(an_overview(3, now_ms=now_ms() - minutes * 60_000))
    browser.open(lonely.at("/subscriptions"))
    browser.click("#rows tbody th a")
    browser.sees(".spark figcaption", "Acked of the last hour, up to")
    curves = browser.asked("return [...document.querySelectorAll('.spark .curve')].map(found => found.ariaLabel)")
    assert len(curves) == 3
    assert all("with gaps" in curve for curve in curves)


def test_a_narrow_screen_shows_every_page_without_scrolling_sideways(browser: Chromium, lonely: Console) -> None:
    lonely.site.show(an_overview(50, now_ms=now_ms()))
    with browser.narrow():
        browser.open(lonely.at())
        heights = "return Math.max(...[...document.querySelectorAll('#rows tbody tr')].map(row => row.offsetHeight))"
        assert browser.asked(heights) <= 100, "of a row: four lines at most"
        assert browser.asked("return document.querySelector('.bar').offsetHeight") <= 120
        assert browser.asked("return document.querySelector('#rows').scrollWidth") <= NARROW
        subscription = browser.asked("return document.querySelector('#rows tbody th a').href")
        pages = browser.asked("return [...document.querySelectorAll('.bar nav a')].map(found => found.href)")
        for page in (*pages, subscription, subscription.replace("/subscription?", "/message?")):
            browser.open(page)
            assert browser.asked(WIDTH) == NARROW, page
