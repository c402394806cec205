"""Who may look at the console, and whose forms it obeys: over HTTP, without a cluster."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.cookiejar import Cookie

import pytest
import requests
from typer.testing import CliRunner

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.base.http_server import HttpGuard
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.console.access import ConsoleAccess, Visitor
from pulsar_on_kafka.console.commands import ConsoleCommands
from pulsar_on_kafka.console.pages.app import PAGES
from pulsar_on_kafka.console.pages.server import ConsoleServer
from pulsar_on_kafka.console.view_model import Site
from tests.consoles import Console, a_console, text_of

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
HTML = {"Accept": "text/html"}


@pytest.fixture
def guarded() -> Iterator[Console]:
    with a_console("kafka://kafka:9092", token="s3cret") as made:
        yield made


@pytest.fixture
def unguarded() -> Iterator[Console]:
    with a_console("kafka://kafka:9092") as made:
        yield made


@pytest.fixture
def operated() -> Iterator[Console]:
    with a_console("kafka://kafka:9092", token="s3cret", operators={"anna": "0perate", "ben": "t0ken"}) as made:
        yield made


def asked(console: Console, path: str = "/", **headers: str) -> requests.Response:
    return requests.get(console.at(path), headers=headers, timeout=60, allow_redirects=False)


def test_without_a_token_others_are_not_let_in() -> None:
    with pytest.raises(InvalidOption, match=r"--console-host 0\.0\.0\.0 opens the console .*--console-token-file"):
        ConsoleServer(EVERYWHERE, 0, Site("x", ConsoleCommands()), HttpGuard())


def test_serve_refuses_that_before_it_needs_a_cluster() -> None:
    found = CliRunner().invoke(app, ["serve", "--with", "console", "--port", "0", "--console-host", EVERYWHERE])
    assert found.exit_code == 1
    assert "use --console-token-file, too" in found.stderr


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InvalidOption, match=rf"127\.0\.0\.1:{port} cannot be listened on: .*--console-port"):
            ConsoleServer("127.0.0.1", port, Site("x", ConsoleCommands()), HttpGuard())


def test_without_a_token_it_answers_to_this_machine_s_names_alone(unguarded: Console) -> None:
    """A site whose name is led to 127.0.0.1 would else read it from a browser of this machine."""
    assert asked(unguarded).status_code == 200
    port = unguarded.url.rpartition(":")[2]
    for name, status in ((f"localhost:{port}", 200), ("[::1]:1", 200), ("evil.example", 403), ("", 403), ("[", 403)):
        assert asked(unguarded, Host=name).status_code == status, name


def test_a_token_is_wanted(guarded: Console) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"Cookie": "pok_console=x"}):
        refused = asked(guarded, **headers)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "s3cret" not in refused.text
    assert asked(guarded, Authorization="bearer s3cret").status_code == 200
    sent_away = asked(guarded, **HTML)
    assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_shown_without_a_right(guarded: Console, path: str) -> None:
    refused = asked(guarded, f"{path}?topic=orders&partition=0&offset=0")
    assert (refused.status_code, "<" in refused.text) == (401, False)


def test_a_browser_logs_in_and_keeps_a_cookie_that_is_not_the_token(guarded: Console) -> None:
    with requests.Session() as browser:
        page = browser.get(guarded.at("/"), headers=HTML, timeout=60)
        assert 'name="token"' in page.text
        assert "kafka:9092" not in page.text
        assert browser.post(guarded.at("/login"), {"token": "wrong"}, timeout=60).status_code == 403
        entered = browser.post(guarded.at("/login"), {"token": "s3cret"}, timeout=60)
        assert "kafka:9092" in entered.text
        cookie: Cookie = next(iter(browser.cookies))
        assert "s3cret" not in str(cookie.value)
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "strict"
        with a_console("kafka://kafka:9092", token="s3cret") as other:
            assert (
                requests.get(other.at("/"), cookies={"pok_console": cookie.value or ""}, timeout=60).status_code == 401
            )


SKIP = {"action": "skip", "topic": "orders", "name": "billing", "count": "1"}


def logged_in(console: Console, token: str) -> requests.Session:
    browser = requests.Session()
    assert browser.post(console.at("/login"), {"token": token}, timeout=60).status_code == 200
    return browser


def audited(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in log.records if each.name == "pulsar_on_kafka.console.audit"]


def test_forms_of_others_are_not_obeyed(operated: Console, caplog: pytest.LogCaptureFixture) -> None:
    with logged_in(operated, "0perate") as anna:
        for form in ({}, {"csrf": "x"}, {"csrf": "ä"}):
            refused = anna.post(operated.at("/operate"), {**SKIP, **form}, timeout=60)
            assert (refused.status_code, "not of this console" in refused.text) == (403, True)
        assert anna.get(operated.at("/operate"), timeout=60).status_code == 405
    assert requests.post(operated.at("/operate"), {"csrf": "x"}, timeout=60).status_code == 401
    assert requests.post(operated.at("/operate"), "x" * 70_000, headers=operated.bearer, timeout=60).status_code == 403
    assert (
        'action=skip topic=orders subscription=billing result="refused: not a form of this console"'
        in audited(caplog)[0]
    )
    access = ConsoleAccess("", {"anna": "a", "ben": "b"})
    proofs = {access.csrf(Visitor(name)) for name in ("", "anna", "ben")}
    assert len(proofs | {access.cookie(Visitor(name)) for name in ("", "anna", "ben")}) == 6


@pytest.mark.parametrize("token", ["s3cret", ""])
def test_those_who_only_read_change_nothing(
    operated: Console, unguarded: Console, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    """Also those of a console without tokens."""
    console = operated if token else unguarded
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for refused in (
        requests.get(console.at("/plan"), SKIP, headers=headers, timeout=60),
        requests.post(console.at("/operate"), SKIP, headers=headers, timeout=60),
    ):
        assert refused.status_code == 403
        assert "this needs the role operate" in text_of(refused.text)
    (line,) = audited(caplog)
    done, _, result = line.partition(" result=")
    assert done == "console=audit operator=- from=127.0.0.1 action=skip topic=orders subscription=billing"
    assert result == '"refused: this needs the role operate: log in with the token of an operator"'


def test_each_operator_has_a_cookie_and_a_name(operated: Console) -> None:
    for token, name in (("0perate", "anna"), ("t0ken", "ben")):
        with logged_in(operated, token) as browser:
            page = browser.get(operated.at("/"), timeout=60).text
            assert f">{name}</span>" in page
            assert token not in str(browser.cookies)
    with logged_in(operated, "s3cret") as browser:
        assert ">Operate</a>" in browser.get(operated.at("/"), timeout=60).text


def test_what_an_operator_does_without_a_cluster_is_audited(
    operated: Console, caplog: pytest.LogCaptureFixture
) -> None:
    with logged_in(operated, "0perate") as anna:
        page = anna.get(operated.at("/plan"), params={**SKIP, "count": "0"}, timeout=60)
        assert (page.status_code, "is 1 to 1,000,000,000, got 0" in page.text) == (400, True)
        assert anna.get(operated.at("/plan"), params=SKIP, timeout=60).status_code == 502
    assert audited(caplog) == []


def test_a_token_for_two_roles_is_refused() -> None:
    with pytest.raises(InvalidOption, match="the token of --console-token-file is one of --console-operators-file"):
        ConsoleServer("127.0.0.1", 0, Site("x", ConsoleCommands()), HttpGuard(token="same"), {"anna": "same"})


def test_operators_alone_let_other_machines_in() -> None:
    server = ConsoleServer(EVERYWHERE, 0, Site("x", ConsoleCommands()), HttpGuard(), {"anna": "token"})
    try:
        assert requests.get(f"http://127.0.0.1:{server.port}", timeout=60).status_code == 401
    finally:
        server.close()


def test_pages_forbid_browsers_what_they_do_not_need(unguarded: Console) -> None:
    headers = asked(unguarded).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert not re.search(r"\sstyle=|\son[a-z]+=|<script>|https?://(?!www\.w3\.org)", asked(unguarded).text)


def test_nothing_outside_of_static_is_served(unguarded: Console) -> None:
    assert asked(unguarded, "/static/console.js").status_code == 200
    assert asked(unguarded, "/static/%2e%2e/access.py").status_code == 404
