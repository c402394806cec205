"""The context of a function: the data and operations that are available while it processes a message. Source:
`pulsar.functions.context`."""

from __future__ import annotations

from typing import Any


class Context:
    """An interface: the function runtime implements it."""

    def get_message_id(self) -> Any:
        """The id of the message being processed."""
        raise NotImplementedError("get_message_id")

    def get_message_key(self) -> Any:
        """The key of the message being processed."""
        raise NotImplementedError("get_message_key")

    def get_message_eventtime(self) -> Any:
        """The event time of the message being processed, Unix time in ms."""
        raise NotImplementedError("get_message_eventtime")

    def get_message_properties(self) -> Any:
        """The properties of the message being processed."""
        raise NotImplementedError("get_message_properties")

    def get_current_message_topic_name(self) -> Any:
        """The topic of the message being processed."""
        raise NotImplementedError("get_current_message_topic_name")

    def get_function_tenant(self) -> Any:
        """The tenant of the function."""
        raise NotImplementedError("get_function_tenant")

    def get_function_namespace(self) -> Any:
        """The namespace of the function."""
        raise NotImplementedError("get_function_namespace")

    def get_function_name(self) -> Any:
        """The name of the function."""
        raise NotImplementedError("get_function_name")

    def get_function_id(self) -> Any:
        """The id of the function."""
        raise NotImplementedError("get_function_id")

    def get_instance_id(self) -> Any:
        """The number of this instance of the function."""
        raise NotImplementedError("get_instance_id")

    def get_function_version(self) -> Any:
        """The version of the function."""
        raise NotImplementedError("get_function_version")

    def get_logger(self) -> Any:
        """A logger whose lines the runtime collects."""
        raise NotImplementedError("get_logger")

    def get_user_config_value(self, key: Any) -> Any:
        """A value of the user's configuration; None where there is none."""
        raise NotImplementedError("get_user_config_value")

    def get_user_config_map(self) -> Any:
        """The user's configuration."""
        raise NotImplementedError("get_user_config_map")

    def get_secret(self, secret_name: Any) -> Any:
        """A secret; None where there is none."""
        raise NotImplementedError("get_secret")

    def get_partition_key(self) -> Any:
        """The key of the message being processed."""
        raise NotImplementedError("get_partition_key")

    def get_ordering_key(self) -> Any:
        """The ordering key of the message being processed."""
        raise NotImplementedError("get_ordering_key")

    def record_metric(self, metric_name: Any, metric_value: Any) -> Any:
        """Record a value of a metric of the user's."""
        raise NotImplementedError("record_metric")

    def publish(
        self,
        topic_name: Any,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Any = None,
        compression_type: Any = None,
        callback: Any = None,
        message_conf: Any = None,
    ) -> Any:
        """Publish a message, serialized by the named SerDe."""
        raise NotImplementedError("publish")

    def get_input_topics(self) -> Any:
        """The topics that the function reads."""
        raise NotImplementedError("get_input_topics")

    def get_output_topic(self) -> Any:
        """The topic for what the function returns."""
        raise NotImplementedError("get_output_topic")

    def get_output_serde_class_name(self) -> Any:
        """The SerDe of the output topic."""
        raise NotImplementedError("get_output_serde_class_name")

    def ack(self, msgid: Any, topic: Any) -> Any:
        """Acknowledge a message of a topic."""
        raise NotImplementedError("ack")

    def incr_counter(self, key: Any, amount: Any) -> Any:
        """Add to a counter of the function's state."""
        raise NotImplementedError("incr_counter")

    def get_counter(self, key: Any) -> Any:
        """A counter of the function's state."""
        raise NotImplementedError("get_counter")

    def del_counter(self, key: Any) -> Any:
        """Delete a counter of the function's state."""
        raise NotImplementedError("del_counter")

    def put_state(self, key: Any, value: Any) -> Any:
        """Set a value of the function's state."""
        raise NotImplementedError("put_state")

    def get_state(self, key: Any) -> Any:
        """A value of the function's state."""
        raise NotImplementedError("get_state")
