"""Format of the scheduler's log: text lines, or one JSON object per line."""

import json
import logging
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from mesos_gpu.adapters.files import log_lines
from mesos_gpu.api.http.note import request_id
from mesos_gpu.wire.plain import clean_json

AUDIT = "mesos_gpu.audit"


class LogFormat(Enum):
    """Format of a log line."""

    TEXT = "text"
    JSON = "json"


def set_up(level: str, form: LogFormat) -> None:
    """Log to stderr at a level; audit lines (who changed what) are logged at every level."""
    handler = logging.StreamHandler()
    handler.setFormatter(Json() if form is LogFormat.JSON else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger(AUDIT).setLevel(logging.INFO)


class Text(log_lines.Text):
    """Formatter of text lines, with the id of the request that a line belongs to."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format a message without the traceback, which `format` adds."""
        if request := request_id():
            record.message += f" [request {request}]"
        return super().formatMessage(record)


class Json(logging.Formatter):
    """Formatter of JSON lines: `at` (UTC, ISO 8601), `level`, `logger`, `message` and the record's own fields.

    `request` (id of the request that a line belongs to) and `traceback` are added if there are any.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line of JSON."""
        body: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **({"request": request} if (request := request_id()) else {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            body["traceback"] = self.formatException(record.exc_info)
        return clean_json(json.dumps(body, ensure_ascii=False, default=str))
