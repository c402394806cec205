"""The Kafka group that shares the maintenance out: whoever is assigned partition i of `ledgers` maintains i."""

from __future__ import annotations

from typing import Final

from mapping.state_topics import LEDGERS
from mapping.subscription_group import group_id

GROUP_ID: Final = group_id(LEDGERS.kafka_name, "maintenance")
