"""`pok serve --with console` as people start it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import requests

from pulsar_on_kafka.admin import AdminClient
from tests.consoles import text_of
from tests.programs import run_program
from tests.services import NO_ROLE, a_service
from tests.steps import Unique
from tests.waiting import until

_SERVE: Final = ("serve", "--port", "0", "--with", "console", "--console-port", "0")
_ADDRESS: Final = r"console on (\S+)"


@pytest.mark.kafka
def test_it_shows_the_cluster_to_those_with_the_token_and_ends_well(
    admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("orders")
    admin.create_topic(topic)
    admin.create_subscription(topic, "billing")
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    operators = tmp_path / "operators"
    operators.write_text("anna 0perate\n")
    files = ("--console-token-file", str(token), "--console-operators-file", str(operators))
    with a_service(tmp_path / "log", service_url, _ADDRESS, *_SERVE, *NO_ROLE, *files) as address:
        assert requests.get(address, timeout=60).status_code == 401

        def page() -> str:
            bearer = {"Authorization": "Bearer s3cret"}
            return text_of(requests.get(f"{address}/subscriptions", {"q": topic}, headers=bearer, timeout=60).text)

        until(lambda: f"billing Exclusive {topic}" in page(), lambda: f"the subscription in {page()}")
        for bearer, operator in (("s3cret", "-"), ("0perate", "anna")):
            form, headers = {"action": "clear", "topic": topic}, {"Authorization": f"Bearer {bearer}"}
            assert requests.post(f"{address}/operate", form, headers=headers, timeout=60).status_code == 403
            line = f"WARNING console=audit operator={operator} from=127.0.0.1 action=clear topic={topic} result="
            assert line in (tmp_path / "log").read_text()


@pytest.mark.long
def test_a_cluster_that_is_away_is_waited_for_and_the_page_says_so(tmp_path: Path) -> None:
    with a_service(tmp_path / "log", "kafka://127.0.0.1:1", _ADDRESS, *_SERVE) as address:

        def told() -> str:
            return text_of(requests.get(address, timeout=60).text)

        assert "The cluster does not answer." in told()
        until(lambda: "not connected yet" not in told(), "the reason")
        assert "The cluster does not answer." in told()


def test_what_is_missing_is_named_with_its_extra() -> None:
    status, _, told = run_program(
        """
        sys.modules["uvicorn"] = None
        from pulsar_on_kafka.cli.main import app
        app(["serve", "--with", "console", "--port", "0"])
        """
    )
    assert status == 1
    assert told.splitlines()[-1] == "pok: --with console needs uvicorn: pip install 'pulsar-on-kafka[console]'"


def test_nobody_else_imports_its_libraries() -> None:
    status, out, told = run_program(
        """
        import pulsar_on_kafka.cli.processes.serve
        print(sorted({"uvicorn", "starlette", "jinja2"} & {name.partition(".")[0] for name in sys.modules}))
        """
    )
    assert (status, out.strip()) == (0, "[]"), told
