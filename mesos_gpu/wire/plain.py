"""Escaping of unprintable text from others, which could forge lines of logs or control a terminal; pure functions."""

import json
import re
from typing import Final

#: Characters that may be unprintable (`str.isprintable`): controls, marks of direction, separators, private use.
_DOUBTFUL: Final = re.compile(r"[^ -~\u00a1-\u00ac\u00ae-\u02ff]")


def clean(text: str) -> str:
    """Return a text with unprintable characters, also line breaks, as Python escapes."""
    return _DOUBTFUL.sub(_escape, text)


def clean_lines(text: str) -> str:
    """Return a text of several lines with unprintable characters in each line escaped as by `clean`."""
    return "\n".join(map(clean, text.split("\n")))


def clean_trace(text: str) -> str:
    """Return a text of several lines, such as a traceback, escaped as by `clean` and indented, so that no line looks
    like another log entry."""
    return "\n".join("    " + clean(line) for line in text.split("\n"))


def clean_json(text: str) -> str:
    """Return a JSON document with unprintable characters as JSON escapes; line breaks between values stay."""
    return _DOUBTFUL.sub(_json_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _json_escape(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
