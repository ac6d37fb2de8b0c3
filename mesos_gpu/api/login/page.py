"""The page to log in: one file, into which nothing but a sentence is put."""

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
    """The page as HTML.

    Args:
        problem: Why somebody was not let in; "": nothing was tried.
        asked: Whether anybody has to log in.
        passwords: Whether a name and a password are taken.
        issuer: Whether one logs in at an OpenID Connect issuer.
    """
    text = _file()
    if not (asked and passwords):
        text = _without(text, *_PASSWORDS)
    if not (asked and issuer):
        text = _without(text, *_ISSUER)
    if not asked:
        text = _without(text, *_TOKENS)
        problem = "This scheduler asks nobody who he is."
    told = f'<p class="alert" role="alert">{escape(problem)}</p>' if problem else ""
    return text.replace(_PROBLEM, told)


def _without(text: str, begin: str, end: str) -> str:
    before, _, rest = text.partition(begin)
    return before + rest.partition(end)[2]
