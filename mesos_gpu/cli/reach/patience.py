"""Asking again where a scheduler says when."""

import time
from collections.abc import Callable

import requests


def unhurried(ask: Callable[[], requests.Response], most_s: float) -> requests.Response:
    """An answer; while it is that too much is asked for, ask again when it says, for so long at most."""
    give_up_at = time.monotonic() + most_s
    while True:
        response = ask()
        after = response.headers.get("Retry-After", "")
        if response.status_code != 429 or not (after.isascii() and after.isdigit()):
            return response
        if time.monotonic() + int(after) >= give_up_at:
            return response
        time.sleep(int(after))
