"""A call to a task's executor, as a MESSAGE: where a channel waits for it, and proof that its scheduler says so. Pure.

Who knows the secret of the launch (see `seal`) alone can make a call, and can answer it: the secret itself, a key or a
command is in none. A call that is heard by others, or comes twice, leads to a channel that is taken already.

Only the standard library's json: the host side imports it.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.digest import blake2b

MARK: Final = b'"channel"'  # each such message has it
_MAX_TEXT: Final = 2000
_SIZE: Final = 32  # bytes of a proof


@dataclass(frozen=True, slots=True)
class Call:
    """Where an executor is to go.

    Attributes:
        id: Of the channel.
        task_id: For whom it is.
        url: Of the scheduler, http:// or https://.
        pin: The SHA-256 of the certificate that it must show there, in hexadecimal digits; "": it is to be one that
            this host's authorities vouch for.
        kept: Sandbox of an ended task to be read, as of `Kept.text`; `task_id` is then the node monitor's. "" for a
            call to a running task.
    """

    id: str
    task_id: str
    url: str
    pin: str = ""
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """Sandbox of an ended task, by the ids in its path.

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
        said = parsed(text.encode())
        if not isinstance(said, list) or [type(each) for each in said] != [str, str, str, bool, bool]:
            raise ValueError("a sandbox has ids of an agent, a framework and an executor, and two flags")
        for each in said[:3]:
            if "/" in each or "\0" in each or each in ("", ".", ".."):
                raise ValueError(f"{each!r} is no id of Mesos")
        return cls(*said)


def encode_call(call: Call, secret: str) -> bytes:
    """The message."""
    said = asdict(call)
    if not call.kept:
        del said["kept"]  # earlier releases know none
    return json.dumps({"channel": {**said, "seal": _seal(call, secret)}}, separators=(",", ":")).encode()


def decode_call(data: bytes, task_id: str, secret: str) -> Call:
    """The inverse.

    Raises:
        ValueError: It is none of the scheduler's, or for another task.
    """
    from hmac import compare_digest

    said = parsed(data)
    said = said.get("channel") if isinstance(said, dict) else None
    if not isinstance(said, dict) or said.keys() - {"kept"} != {"id", "task_id", "url", "pin", "seal"}:
        raise ValueError("a call to a channel has id, task_id, url, pin, seal, and perhaps kept")
    if not all(isinstance(each, str) and len(each) <= _MAX_TEXT for each in said.values()):
        raise ValueError(f"a call to a channel has texts of at most {_MAX_TEXT} characters")
    seal = said.pop("seal")
    call = Call(**said)
    if not secret or not compare_digest(seal.encode(), _seal(call, secret).encode()):
        raise ValueError("a call to a channel that is not of the scheduler of this task")
    if call.task_id != task_id:
        raise ValueError(f"a call to a channel for {call.task_id!r}")
    return call


def answer_to(call: Call, secret: str) -> str:
    """What proves to the scheduler that the one who comes is the executor that was called."""
    return _keyed("answer", call, secret)


def _seal(call: Call, secret: str) -> str:
    return _keyed("call", call, secret)


def _keyed(use: str, call: Call, secret: str) -> str:
    kept = [call.kept] if call.kept else []
    text = json.dumps(["channel", use, call.id, call.task_id, call.url, call.pin, *kept])
    return blake2b(text.encode(), key=secret.encode(), digest_size=_SIZE).hexdigest()
