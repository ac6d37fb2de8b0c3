"""What answers where a notebook server is to be."""

import http.client
import json
from typing import Final, NamedTuple

_WAIT_S: Final = 3.0  # for an answer
_MAX: Final = 1 << 16  # bytes of it
_NAMES: Final = "kernels"  # of Jupyter's status (Jupyter Server REST API, GET /api/status)


class Answer(NamedTuple):
    """What came. `said`: in a few words, of what is no Jupyter that takes the token."""

    is_notebook: bool
    said: str = ""


def asked(place: tuple[str, int], token: str) -> Answer | None:
    """Ask what is there for the status of Jupyter, which only who has its token is told; None: nothing answers yet."""
    line = http.client.HTTPConnection(*place, timeout=_WAIT_S)
    try:
        line.request("GET", "/api/status", headers={"Authorization": f"token {token}"})
        answer = line.getresponse()
        return _judged(answer, answer.read(_MAX))
    except OSError:  # it does not listen yet
        return None
    except http.client.HTTPException:
        return Answer(is_notebook=False, said="what it speaks is no HTTP")
    finally:
        line.close()


def _judged(answer: http.client.HTTPResponse, body: bytes) -> Answer:
    try:
        status = json.loads(body) if answer.status == http.client.OK else None
    except ValueError:
        status = None
    if isinstance(status, dict) and _NAMES in status:
        return Answer(is_notebook=True)
    if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return Answer(
            is_notebook=False, said="it refuses the token: a file of Jupyter's settings may name another one"
        )
    server = answer.headers.get("Server", "")
    which = f", and is {server}" if server else ""
    return Answer(is_notebook=False, said=f"it says {answer.status} {answer.reason}{which}")
