"""Check of the server that answers where a notebook server should be."""

import http.client
import json
from typing import Final, NamedTuple

_WAIT_S: Final = 3.0  # timeout of an answer
_MAX: Final = 1 << 16  # maximum bytes of an answer
_NAMES: Final = "kernels"  # key of Jupyter's status (Jupyter Server REST API, GET /api/status)


class Answer(NamedTuple):
    """Result of a check; `said` describes a server that is not Jupyter, or does not accept the token."""

    is_notebook: bool
    said: str = ""


def asked(place: tuple[str, int], token: str) -> Answer | None:
    """Request Jupyter's status, which needs its token; None if no server answers yet."""
    line = http.client.HTTPConnection(*place, timeout=_WAIT_S)
    try:
        line.request("GET", "/api/status", headers={"Authorization": f"token {token}"})
        answer = line.getresponse()
        return _judged(answer, answer.read(_MAX))
    except OSError:  # the server does not listen yet
        return None
    except http.client.HTTPException:
        return Answer(is_notebook=False, said="it does not use HTTP")
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
            is_notebook=False, said="it refuses the token: Jupyter's settings may contain another one"
        )
    server = answer.headers.get("Server", "")
    which = f", server {server}" if server else ""
    return Answer(is_notebook=False, said=f"it answers {answer.status} {answer.reason}{which}")
