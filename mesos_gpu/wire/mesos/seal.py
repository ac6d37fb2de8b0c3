"""Updates that nobody can make who does not know their task's secret.

The scheduler gives each launch a secret in TaskInfo.data. The executor seals with it what an update says: a keyed
BLAKE2b (RFC 7693, section 2.9) goes along in TaskStatus.data, around what else is there. The secret itself never does:
an agent keeps updates in files that every user of its host can read (meta/…/task.updates).

Only what is cheap to import: each executor pays for it.
"""

import json
from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.body import MAX_AMOUNT, parsed
from mesos_gpu.wire.digest import blake2b

_SIZE: Final = 16  # bytes of a seal, and of a secret
_FORM: Final = {"seal", "number", "body"}


@dataclass(frozen=True, slots=True)
class Said:
    """What an update says of a task. `number`: of the updates of its executor, from 1."""

    task_id: str
    state: str
    number: int
    message: str = ""
    reason: str = ""
    healthy: bool | None = None
    body: str = ""  # what its data is without a seal


def secret_for(key: bytes, task_id: str) -> str:
    """The secret of a launch; who knows it can neither tell the key nor another's secret.

    Args:
        key: The scheduler's, 16 to 64 bytes.
        task_id: Mesos' task id, which is never used twice.
    """
    return blake2b(task_id.encode(), key=key, digest_size=_SIZE).hexdigest()


def secret_in(data: bytes) -> str:
    """The secret in a TaskInfo.data, whatever else that is; "": there is none."""
    try:
        secret = parsed(data).get("secret", "")
    except (ValueError, AttributeError):
        return ""
    return secret if isinstance(secret, str) else ""


def seal(secret: str, said: Said) -> bytes:
    """TaskStatus.data of an update."""
    sealed = {"seal": _seal(secret, said), "number": said.number, "body": said.body}
    return json.dumps(sealed, separators=(",", ":")).encode()


def opened(data: bytes) -> tuple[str, int, bytes] | None:
    """Seal, number and body of a TaskStatus.data; None: it has no seal."""
    try:
        value = parsed(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.keys() != _FORM:
        return None
    mark, number, body = value["seal"], value["number"], value["body"]
    if not (isinstance(mark, str) and type(number) is int and isinstance(body, str)):
        return None
    return (mark, number, body.encode()) if 0 <= number < MAX_AMOUNT else None


def holds(sealed: str, secret: str, said: Said) -> bool:
    """Whether the seal is that of what is said."""
    from hmac import compare_digest

    return compare_digest(sealed.encode(), _seal(secret, said).encode())


def _seal(secret: str, said: Said) -> str:
    text = json.dumps(
        [said.task_id, said.state, said.number, said.message, said.reason, said.healthy, said.body]
    )
    return blake2b(text.encode(), key=secret.encode(), digest_size=_SIZE).hexdigest()


def pass_for(secret: str, what: str) -> str:
    """What an executor shows the scheduler to be given something for its task; `what`: as verb and path."""
    return blake2b(b"pass\0" + what.encode(), key=secret.encode(), digest_size=_SIZE).hexdigest()


def passes(shown: str, secret: str, what: str) -> bool:
    """Whether that is shown which only the task's executor can make."""
    from hmac import compare_digest

    return compare_digest(shown.encode(), pass_for(secret, what).encode())
