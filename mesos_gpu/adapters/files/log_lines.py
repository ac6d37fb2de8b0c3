"""Log formatting without control characters, so that logged input can neither control terminals nor forge lines."""

import logging
from typing import Final

from mesos_gpu.wire.plain import clean, clean_trace

_PARTS: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Text(logging.Formatter):
    """Formatter with time, level, logger and message; a traceback is indented below.

    Args:
        parts: Format of a line in the syntax of `logging`.
    """

    def __init__(self, parts: str = _PARTS) -> None:
        super().__init__(parts)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return a message without the traceback, which `format` adds."""
        record.message = clean(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: "logging._SysExcInfoType") -> str:
        """Return a traceback, whose error texts are neutralized too."""
        return clean_trace(super().formatException(ei))


def to_stderr() -> None:
    """Log to standard error in this format, for programs on GPU hosts."""
    handler = logging.StreamHandler()
    handler.setFormatter(Text("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level="INFO", handlers=[handler])
