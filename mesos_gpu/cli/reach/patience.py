"""Retrying requests that the scheduler asks to retry later."""

import time
from collections.abc import Callable

import requests


def unhurried(ask: Callable[[], requests.Response], most_s: float) -> requests.Response:
    """Return an answer; a request limited by rate (429) is repeated after its Retry-After, up to `most_s` in total."""
    give_up_at = time.monotonic() + most_s
    while True:
        response = ask()
        after = response.headers.get("Retry-After", "")
        if response.status_code != 429 or not (after.isascii() and after.isdigit()):
            return response
        if time.monotonic() + int(after) >= give_up_at:
            return response
        time.sleep(int(after))
