"""Schemas over the gateway's REST: registered, compared and deleted as by Pulsar's schemas resource."""

from __future__ import annotations

import json

import pytest

import pulsar_on_kafka as sdk
from tests.integration.gateway.rest import Rest
from tests.steps import Unique

pytestmark = pytest.mark.kafka


class Order(sdk.schema.Record):
    item = sdk.schema.String(required=True)


class LargerOrder(sdk.schema.Record):
    item = sdk.schema.String(required=True)
    price = sdk.schema.Integer(required=True)


def payload(record: type[sdk.schema.Record]) -> dict[str, object]:
    info = sdk.schema.AvroSchema(record).schema_info()
    return {"type": "AVRO", "schema": info.schema.decode(), "properties": {"by": "a test"}}


def test_a_schema_is_registered_compared_and_deleted(rest: Rest, unique: Unique) -> None:
    here = f"/admin/v2/schemas/public/default/{unique()}"
    small, large = payload(Order), payload(LargerOrder)
    assert rest.posts(f"{here}/schema", small) == {"version": {"version": 0}}  # and the topic was created
    assert rest.posts(f"{here}/schema", small) == {"version": {"version": 0}}
    found = rest.get(f"{here}/schema")
    assert (found["type"], found["properties"]["by"]) == ("AVRO", "a test")
    assert json.loads(found["data"]) == json.loads(str(small["schema"]))
    assert rest.posts(f"{here}/version", small) == {"version": 0}
    rest.refuses(404, "does not have this schema", "POST", f"{here}/version", json=large)
    refused = {"compatibility": False, "schemaCompatibilityStrategy": "FULL"}
    assert rest.posts(f"{here}/compatibility", large) == refused
    assert rest.posts(f"{here}/compatibility", small) == {**refused, "compatibility": True}
    rest.refuses(409, "", "POST", f"{here}/schema", json=large)
    told = rest.get(f"{here}/metadata")
    assert [each["version"] for each in told["index"]] == [0]
    assert told["info"] == told["index"][-1]
    deleted = rest.ask("DELETE", f"{here}/schema", params={"force": "false"})
    assert (deleted.status_code, deleted.json()) == (200, {"version": 1})
    rest.refuses(404, "", "GET", f"{here}/schema")
    rest.refuses(404, "no schema", "GET", f"{here}/metadata")


def test_a_schema_of_keys_and_values_is_registered_in_the_form_in_which_it_is_shown(rest: Rest, unique: Unique) -> None:
    here = f"/admin/v2/schemas/public/default/{unique()}"
    value = json.loads(str(payload(Order)["schema"]))
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "INLINE"}
    body = {"type": "KEY_VALUE", "schema": json.dumps({"key": "", "value": value}), "properties": properties}
    rest.posts(f"{here}/schema", body)
    found = rest.get(f"{here}/schema")
    assert json.loads(found["data"]) == {"key": "", "value": value}
    assert rest.posts(f"{here}/version", {**body, "schema": found["data"]}) == {"version": 0}


@pytest.mark.parametrize(
    ("status", "reason", "body"),
    [
        (400, "expected type, schema and properties", []),
        (400, "expected an object of texts", {"type": "STRING", "schema": "", "properties": {"a": 1}}),
        (422, "type is 'AVROO'", {"type": "AVROO", "schema": ""}),
        (422, "schemas of key and value", {"type": "KEY_VALUE", "schema": '{"key": ""}'}),
        (422, "is not JSON", {"type": "KEY_VALUE", "schema": "{"}),
    ],
)
def test_a_body_that_is_no_schema_is_refused(
    rest: Rest, unique: Unique, status: int, reason: str, body: object
) -> None:
    topic = unique()
    rest.refuses(status, reason, "POST", f"/admin/v2/schemas/public/default/{topic}/schema", json=body)
    rest.refuses(404, topic, "GET", f"/admin/v2/persistent/public/default/{topic}/stats")


def test_a_body_has_the_size_of_a_schema_at_most(rest: Rest, unique: Unique) -> None:
    large = {"type": "AVRO", "schema": "x" * (9 * 1024 * 1024)}
    rest.refuses(413, "8388608 bytes", "POST", f"/admin/v2/schemas/public/default/{unique()}/schema", json=large)
