"""The log-in page: one HTML file, of which sections are removed and a message is inserted."""

from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

_PROBLEM: Final = "<!-- problem -->"
_PASSWORDS: Final = ("<!-- passwords -->", "<!-- end of passwords -->")
_ISSUER: Final = ("<!-- issuer -->", "<!-- end of issuer -->")
_TOKENS: Final = ("<!-- tokens -->", "<!-- end of tokens -->")


@cache
def _file() -> str:
    return files("mesos_gpu.web").joinpath("login.html").read_text(encoding="utf-8")


def login_page(problem: str = "", *, asked: bool, passwords: bool, issuer: bool) -> str:
    """Return the log-in page as HTML.

    Args:
        problem: Reason for which a log-in failed; "" if none has failed.
        asked: Whether authentication is on.
        passwords: Whether a name and a password are accepted.
        issuer: Whether users log in at an OpenID Connect issuer.
    """
    text = _file()
    if not (asked and passwords):
        text = _without(text, *_PASSWORDS)
    if not (asked and issuer):
        text = _without(text, *_ISSUER)
    if not asked:
        text = _without(text, *_TOKENS)
        problem = "This scheduler has no authentication."
    alert = f'<p class="alert" role="alert">{escape(problem)}</p>' if problem else ""
    return text.replace(_PROBLEM, alert)


def _without(text: str, begin: str, end: str) -> str:
    before, _, rest = text.partition(begin)
    return before + rest.partition(end)[2]
