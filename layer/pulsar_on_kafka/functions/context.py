"""The context of a function: the data and operations that are available while it processes a message. Source:
`pulsar.functions.context`."""

from __future__ import annotations

from typing import Any


class Context:
    """An interface: the function runtime implements it."""

    def get_message_id(self) -> Any:
        raise NotImplementedError("get_message_id")

    def get_message_key(self) -> Any:
        raise NotImplementedError("get_message_key")

    def get_message_eventtime(self) -> Any:
        """The event time of the message being processed, Unix time in ms."""
        raise NotImplementedError("get_message_eventtime")

    def get_message_properties(self) -> Any:
        raise NotImplementedError("get_message_properties")

    def get_current_message_topic_name(self) -> Any:
        raise NotImplementedError("get_current_message_topic_name")

    def get_function_tenant(self) -> Any:
        raise NotImplementedError("get_function_tenant")

    def get_function_namespace(self) -> Any:
        raise NotImplementedError("get_function_namespace")

    def get_function_name(self) -> Any:
        raise NotImplementedError("get_function_name")

    def get_function_id(self) -> Any:
        raise NotImplementedError("get_function_id")

    def get_instance_id(self) -> Any:
        raise NotImplementedError("get_instance_id")

    def get_function_version(self) -> Any:
        raise NotImplementedError("get_function_version")

    def get_logger(self) -> Any:
        raise NotImplementedError("get_logger")

    def get_user_config_value(self, key: Any) -> Any:
        """A value of the user's configuration; None where there is none."""
        raise NotImplementedError("get_user_config_value")

    def get_user_config_map(self) -> Any:
        raise NotImplementedError("get_user_config_map")

    def get_secret(self, secret_name: Any) -> Any:
        """A secret; None where there is none."""
        raise NotImplementedError("get_secret")

    def get_partition_key(self) -> Any:
        raise NotImplementedError("get_partition_key")

    def get_ordering_key(self) -> Any:
        raise NotImplementedError("get_ordering_key")

    def record_metric(self, metric_name: Any, metric_value: Any) -> Any:
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
        raise NotImplementedError("get_input_topics")

    def get_output_topic(self) -> Any:
        raise NotImplementedError("get_output_topic")

    def get_output_serde_class_name(self) -> Any:
        """The SerDe of the output topic."""
        raise NotImplementedError("get_output_serde_class_name")

    def ack(self, msgid: Any, topic: Any) -> Any:
        raise NotImplementedError("ack")

    def incr_counter(self, key: Any, amount: Any) -> Any:
        raise NotImplementedError("incr_counter")

    def get_counter(self, key: Any) -> Any:
        raise NotImplementedError("get_counter")

    def del_counter(self, key: Any) -> Any:
        raise NotImplementedError("del_counter")

    def put_state(self, key: Any, value: Any) -> Any:
        raise NotImplementedError("put_state")

    def get_state(self, key: Any) -> Any:
        raise NotImplementedError("get_state")
