"""Responses of handlers, and the command of one publish."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand, Response


class PulsarPublishCommand(PublishCommand):
    """One message to publish: `destination` is the topic, `headers` are its properties."""

    def __init__(
        self,
        body: Any,
        *,
        _publish_type: PublishType,
        topic: str = "",
        key: str | None = None,
        ordering_key: str | None = None,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Times are Unix times in ms; `timeout` is in seconds, and is for requests."""
        super().__init__(
            body,
            _publish_type=_publish_type,
            reply_to=reply_to,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
        )
        self.key = key
        self.ordering_key = ordering_key
        self.event_timestamp = event_timestamp
        self.deliver_at = deliver_at
        self.deliver_after = deliver_after
        self.timeout = timeout

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> PulsarPublishCommand:
        """The same command of this class; one of another broker has no keys and times."""
        if isinstance(cmd, PulsarPublishCommand):
            return cmd
        return cls(
            cmd.body,
            _publish_type=cmd.publish_type,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
        )


class PulsarResponse(Response):
    """A handler's response with a key, properties and times of its own."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Times are Unix times in ms."""
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.key = key
        self.ordering_key = ordering_key
        self.event_timestamp = event_timestamp
        self.deliver_at = deliver_at
        self.deliver_after = deliver_after

    def get_publish_key(self) -> str | None:
        return self.key

    def as_publish_command(self) -> PulsarPublishCommand:
        return PulsarPublishCommand(
            self.body,
            _publish_type=PublishType.PUBLISH,
            headers=self.headers,
            correlation_id=self.correlation_id,
            key=self.key,
            ordering_key=self.ordering_key,
            event_timestamp=self.event_timestamp,
            deliver_at=self.deliver_at,
            deliver_after=self.deliver_after,
        )
