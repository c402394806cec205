"""The format of a broker's log lines: topic, subscription and message id, as FastStream's other brokers have theirs."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

_ID_WIDTH: Final = 12


class LogParameters(DefaultLoggerStorage):
    """The widths of the columns, by the subscribers that are registered, and the logger made from them."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 4, "subscription": 4}
        self.logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        found = self._get_logger_ref()
        if found:
            return found
        columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items())
        made = get_broker_logger(
            name="pulsar",
            default_context=dict.fromkeys(self._widths, ""),
            message_id_ln=_ID_WIDTH,
            fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-{_ID_WIDTH}s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        self._logger_ref.add(made)
        return made


make_pulsar_logger_state = partial(make_logger_state, default_storage_cls=LogParameters)
