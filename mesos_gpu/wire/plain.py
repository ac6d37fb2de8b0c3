"""Text of others made plain: a value stays on its line, and commands neither a terminal nor who reads a log. Pure."""

import json
import re
from typing import Final

#: All that may be unprintable (`str.isprintable`): C0 and C1 controls, marks of direction, separators, private use.
_DOUBTFUL: Final = re.compile(r"[^ -~\u00a1-\u00ac\u00ae-\u02ff]")


def clean(text: str) -> str:
    """What cannot be seen as escapes of Python."""
    return _DOUBTFUL.sub(_escape, text)


def clean_lines(text: str) -> str:
    """Lines of text, each of them as `clean` has it: what went wrong and how to mend it."""
    return "\n".join(map(clean, text.split("\n")))


def clean_trace(text: str) -> str:
    """What a log has below its line, as a traceback: cleaned, and each line indented, so that none passes for another
    entry."""
    return "\n".join("    " + clean(line) for line in text.split("\n"))


def clean_json(text: str) -> str:
    """A JSON document, in which it is escaped as JSON does it; line breaks between values stay."""
    return _DOUBTFUL.sub(_json_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _json_escape(match: re.Match[str]) -> str:
    char = match[0]
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
