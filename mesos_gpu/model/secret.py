"""A secret that a task gets: where its value is kept, and what the task finds it by. The value is in no noun."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_SEGMENT: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
#: A path in the store, and what of it where a store keeps several values together.
SOURCE: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,7}}(?:#{_SEGMENT})?")
SOURCE_FORM: Final = "a path in the store of secrets, as team/hf, or team/hf#token for one value of several"
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME: Final = r"\.?[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}"  # neither . nor ..
FILE: Final = re.compile(rf"{_NAME}(?:/{_NAME}){{0,7}}")
FILE_FORM: Final = "a path in the sandbox, as keys/hf"
MAX_SECRETS: Final = 32  # of a job
LARGEST_SECRET: Final = 64 << 10  # bytes of a value; execve(2) takes no variable of more than 128 KiB
MAX_SECRET: Final = 256 << 10  # bytes of all values of a job: Mesos hands them to an executor in one message
#: The name of the value of `image_secret` beside those of variables, none of which has a space.
IMAGE_LOGIN: Final = "image login"
#: What a task is told by, and so can be no secret's name.
_RESERVED: Final = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})


@dataclass(frozen=True, slots=True)
class Secret:
    """A use of a secret. With `file`, the variable `name` says where the file is; else it is the value itself."""

    name: str  # of the environment variable
    source: str  # as `SOURCE` has it
    file: str = ""  # relative to the sandbox; "": it is no file


def unfit(secrets: Sequence[Secret]) -> Iterator[tuple[str, str]]:
    """What no task could be given: the name of each, and why."""
    files: list[str] = []
    for each in secrets:
        if each.name.startswith("MESOS_") or each.name in _RESERVED:
            yield each.name, "is a name that tasks are told things by; choose another"
        if each.file and any(_collide(each.file, other) for other in files):
            yield each.name, f"its file {each.file} is in the way of another's; give each a path of its own"
        files += [each.file] if each.file else []


def _collide(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
