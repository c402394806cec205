"""`examples/fastapi_app.py` and `examples/django_app.py` answer requests, whose orders arrive."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import httpx
import pytest

import pulsar_on_kafka as pulsar
from tests.programs import ROOT, run_program
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fastapi_publishes_in_a_request_and_bills_in_its_lifespan(
    service_url: str, unique: Unique, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POK_URL", service_url)
    monkeypatch.setenv("ORDERS", unique("orders"))
    app = example("fastapi_app").app
    printed = ""

    def billed() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return printed == "billed order 7\n"

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://a") as web:
            answer = await web.post("/orders/7", timeout=PATIENCE_S)
            assert answer.json()["message_id"].startswith("(")
            await asyncio.to_thread(until, billed, "the bill of order 7")

    asyncio.run(main())


def test_django_publishes_what_is_committed(service_url: str, unique: Unique, client: pulsar.Client) -> None:
    topic = unique("orders")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    code, out, err = run_program(
        """
        os.environ["POK_URL"], os.environ["ORDERS"] = sys.argv[1:]
        sys.path.insert(0, "examples")
        import django
        import django_app
        from django.test import Client
        django.setup()
        web = Client(raise_request_exception=False)
        print(web.post("/orders/0").status_code, web.post("/orders/5").json())
        """,
        service_url,
        topic,
    )
    assert (code, out) == (0, "500 {'order': 20}\n"), err
    assert payloads(receive(consumer, 1)) == ["order 5"]
    assert nothing_comes(consumer)
