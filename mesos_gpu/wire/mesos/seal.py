"""Seals of status updates, which can only be made with the secret of their task.

The scheduler gives each launch a secret in TaskInfo.data. The executor seals the contents of an update with it: a keyed
BLAKE2b (RFC 7693, section 2.9) is sent in TaskStatus.data, around the other data. The secret is never sent, as agents
keep updates in files that every user of their host can read (meta/…/task.updates).

Every executor imports this module, so it imports only what is cheap.
"""

import json
from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.body import MAX_AMOUNT, parsed
from mesos_gpu.wire.digest import blake2b

_SIZE: Final = 16  # bytes of a seal and of a secret
_FORM: Final = {"seal", "number", "body"}


@dataclass(frozen=True, slots=True)
class Said:
    """Sealed contents of a status update. `number`: number among the updates of its executor, from 1."""

    task_id: str
    state: str
    number: int
    message: str = ""
    reason: str = ""
    healthy: bool | None = None
    body: str = ""  # its data without the seal


def secret_for(key: bytes, task_id: str) -> str:
    """Return the secret of a launch, from which neither the key nor other secrets can be derived.

    Args:
        key: Key of the scheduler, 16 to 64 bytes.
        task_id: Mesos task id, which is never reused.
    """
    return blake2b(task_id.encode(), key=key, digest_size=_SIZE).hexdigest()


def secret_in(data: bytes) -> str:
    """Return the secret in TaskInfo.data of any kind; "" without one."""
    try:
        secret = parsed(data).get("secret", "")
    except (ValueError, AttributeError):
        return ""
    return secret if isinstance(secret, str) else ""


def seal(secret: str, said: Said) -> bytes:
    """Return the TaskStatus.data of a sealed update."""
    sealed = {"seal": _seal(secret, said), "number": said.number, "body": said.body}
    return json.dumps(sealed, separators=(",", ":")).encode()


def opened(data: bytes) -> tuple[str, int, bytes] | None:
    """Return seal, number and body of TaskStatus.data; None without a seal."""
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
    """Return whether a seal matches the contents of an update."""
    from hmac import compare_digest

    return compare_digest(sealed.encode(), _seal(secret, said).encode())


def _seal(secret: str, said: Said) -> str:
    text = json.dumps(
        [said.task_id, said.state, said.number, said.message, said.reason, said.healthy, said.body]
    )
    return blake2b(text.encode(), key=secret.encode(), digest_size=_SIZE).hexdigest()


def pass_for(secret: str, what: str) -> str:
    """Return the proof with which an executor requests something for its task; `what`: method and path."""
    return blake2b(b"pass\0" + what.encode(), key=secret.encode(), digest_size=_SIZE).hexdigest()


def passes(shown: str, secret: str, what: str) -> bool:
    """Return whether a proof is that of the task's executor."""
    from hmac import compare_digest

    return compare_digest(shown.encode(), pass_for(secret, what).encode())
