"""Lines of a log for people: whoever had a say in one commands no terminal, and forges no other line."""

import logging
from typing import Final

from mesos_gpu.wire.plain import clean, clean_trace

_PARTS: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Text(logging.Formatter):
    """Time, level, where from, what; a traceback is indented below."""

    def __init__(self, parts: str = _PARTS) -> None:
        """`parts` of a line, by the names that `logging` gives them."""
        super().__init__(parts)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format a message without the traceback, which `format` adds."""
        record.message = clean(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: "logging._SysExcInfoType") -> str:
        """Format a traceback; texts of errors are in it."""
        return clean_trace(super().formatException(ei))


def to_stderr() -> None:
    """Let a program on a GPU host log so."""
    handler = logging.StreamHandler()
    handler.setFormatter(Text("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level="INFO", handlers=[handler])
