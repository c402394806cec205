"""Whether redelivery keeps the order of a subscription: by its property, or else by policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.policies import ORDERED_REDELIVERY, applied
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType

PROPERTY: Final = "ordered_redelivery"
"""The property of a subscription that all of its consumers follow. Its values are `true` and `false`."""
_VALUES: Final[Mapping[str, bool]] = {"true": True, "false": False}


def is_ordered(subscription: Subscription, *levels: Mapping[str, Any]) -> bool:
    """Whether messages behind a refused one of their key wait. `levels`: the policies of topic and namespace.

    Raises:
        InvalidOption: the property has another value than true and false.
    """
    if subscription.type is SubscriptionType.SHARED:
        return False
    own = ordered_property(subscription.properties)
    return bool(applied(ORDERED_REDELIVERY, *levels)) if own is None else own


def ordered_property(properties: Mapping[str, str]) -> bool | None:
    """The value of the property; None without it. Raises InvalidOption."""
    value = properties.get(PROPERTY)
    if value is None:
        return None
    if value not in _VALUES:
        raise errors.InvalidOption(f"the subscription's property {PROPERTY} is {value!r:.60}, expected true or false")
    return _VALUES[value]


def with_ordered(
    recorded: Mapping[str, str], properties: Mapping[str, str], requested: bool | None, name: str
) -> dict[str, str]:
    """The `properties` of a subscription, with the recorded or requested property.

    Raises:
        InvalidOption: a consumer requests the other value than the recorded one.
    """
    before = ordered_property(recorded)
    wanted = ordered_property(properties) if requested is None else requested
    if before is not None and wanted is not None and before is not wanted:
        raise errors.InvalidOption(
            f"subscription {name} has {PROPERTY} {str(before).lower()}, a consumer requests {str(wanted).lower()}; "
            "its property decides for all consumers"
        )
    kept = before if wanted is None else wanted
    return dict(properties) if kept is None else {**properties, PROPERTY: str(kept).lower()}
