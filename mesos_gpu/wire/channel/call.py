"""Calls of an executor to a channel, sent as MESSAGE: its address, and proof that the scheduler sent it; pure
functions.

Calls and answers can only be made with the secret of the launch (see `seal`). A call contains no secret, key or
command. If others see a call, or it is repeated, it leads only to a channel that is taken already.

The host side imports this module, so it uses only the standard library's json.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.digest import blake2b

MARK: Final = b'"channel"'  # contained in each such message
_MAX_TEXT: Final = 2000
_SIZE: Final = 32  # bytes of a seal


@dataclass(frozen=True, slots=True)
class Call:
    """Address of a channel to which an executor should connect.

    Attributes:
        id: Id of the channel.
        task_id: Id of the task.
        url: URL of the scheduler, http:// or https://.
        pin: SHA-256 of the certificate that the scheduler must show, hexadecimal; "" to verify it with the authorities
            of the host.
        kept: Sandbox of an ended task to be read, from `Kept.text`; then `task_id` is that of the node monitor. "" for
            a call to a running task.
    """

    id: str
    task_id: str
    url: str
    pin: str = ""
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """Sandbox of an ended task, identified by the ids in its path.

    Attributes:
        agent_id, framework_id, executor_id: Mesos' ids of the task's agent, framework and executor.
        nested: Whether the task ran in a nested container, with its own directory below the executor's sandbox.
        as_root: Whether the task ran as root.
    """

    agent_id: str
    framework_id: str
    executor_id: str
    nested: bool
    as_root: bool

    @property
    def text(self) -> str:
        """Encode the sandbox as a string, for `Call.kept`."""
        return json.dumps([*(getattr(self, name) for name in self.__dataclass_fields__)])

    @classmethod
    def of(cls, text: str) -> "Kept":
        """Decode the result of `text`.

        Raises:
            ValueError: The string is not such a result, or an id is not a valid directory name.
        """
        values = parsed(text.encode())
        if not isinstance(values, list) or [type(value) for value in values] != [str, str, str, bool, bool]:
            raise ValueError(
                "a sandbox must have ids of an agent, a framework and an executor, and two flags"
            )
        for id in values[:3]:
            if "/" in id or "\0" in id or id in ("", ".", ".."):
                raise ValueError(f"{id!r} is not a Mesos id")
        return cls(*values)


def encode_call(call: Call, secret: str) -> bytes:
    """Encode a call as a message."""
    fields = asdict(call)
    if not call.kept:
        del fields["kept"]  # earlier releases do not have this field
    return json.dumps({"channel": {**fields, "seal": _seal(call, secret)}}, separators=(",", ":")).encode()


def decode_call(data: bytes, task_id: str, secret: str) -> Call:
    """Decode a message, and verify that it is from the task's scheduler.

    Raises:
        ValueError: The message is not a call from the task's scheduler, or is for another task.
    """
    from hmac import compare_digest

    fields = parsed(data)
    fields = fields.get("channel") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or fields.keys() - {"kept"} != {"id", "task_id", "url", "pin", "seal"}:
        raise ValueError("a call to a channel must have id, task_id, url, pin, seal, and optionally kept")
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in fields.values()):
        raise ValueError(f"a call to a channel must have texts of at most {_MAX_TEXT} characters")
    seal = fields.pop("seal")
    call = Call(**fields)
    if not secret or not compare_digest(seal.encode(), _seal(call, secret).encode()):
        raise ValueError("a call to a channel is not from the scheduler of this task")
    if call.task_id != task_id:
        raise ValueError(f"a call to a channel is for another task, {call.task_id!r}")
    return call


def answer_to(call: Call, secret: str) -> str:
    """Return the proof that the executor sends to show that it received the call."""
    return _keyed("answer", call, secret)


def _seal(call: Call, secret: str) -> str:
    return _keyed("call", call, secret)


def _keyed(use: str, call: Call, secret: str) -> str:
    kept = [call.kept] if call.kept else []
    text = json.dumps(["channel", use, call.id, call.task_id, call.url, call.pin, *kept])
    return blake2b(text.encode(), key=secret.encode(), digest_size=_SIZE).hexdigest()
