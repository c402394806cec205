"""Django in one file: a view publishes an order when its database transaction commits.

POK_URL=kafka://localhost:9092 python examples/django_app.py runserver --noreload
"""

import os
import sys
from functools import cache

from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

import pulsar_on_kafka as pulsar

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DATABASES=DATABASES)


@cache  # opened by the first request: a server may fork before that
def producer() -> pulsar.Producer:
    return pulsar.Client(os.environ["POK_URL"]).create_producer(os.environ.get("ORDERS", "orders"))


@transaction.atomic
def order(_request: HttpRequest, number: int) -> JsonResponse:
    transaction.on_commit(lambda: producer().send(f"order {number}".encode()))
    return JsonResponse({"order": 100 // number})  # order 0 fails, so its transaction is rolled back


urlpatterns = [path("orders/<int:number>", order)]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
