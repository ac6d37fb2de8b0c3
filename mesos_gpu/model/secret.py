"""Secrets of a task: where the store has them, and under which name the task gets them. No type holds a value."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_SEGMENT: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
#: A path in the store, with an optional #KEY for stores that keep several values under one path.
SOURCE: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,7}}(?:#{_SEGMENT})?")
SOURCE_FORM: Final = "a path in the store of secrets, as team/hf, or team/hf#token for one value of several"
ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME: Final = r"\.?[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}"  # neither . nor ..
FILE: Final = re.compile(rf"{_NAME}(?:/{_NAME}){{0,7}}")
FILE_FORM: Final = "a path in the sandbox, as keys/hf"
MAX_SECRETS: Final = 32  # of a job
LARGEST_SECRET: Final = 64 << 10  # bytes of a value; execve(2) takes no variable of more than 128 KiB
MAX_SECRET: Final = 256 << 10  # bytes of all values of a job: Mesos hands them to an executor in one message
#: Key of the value of `image_secret` among values of variables; no name of a variable has a space.
IMAGE_LOGIN: Final = "image login"
#: Variables by which the executor gives GPUs to a task; secrets may not use these names.
_RESERVED: Final = frozenset({"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that a task gets. With `file`, the variable `name` has the file's path; else it has the value itself."""

    name: str  # name of the environment variable
    source: str  # path in the store, in the form of `SOURCE`
    file: str = ""  # path relative to the sandbox; "" to pass the value in the variable


def unfit(secrets: Sequence[Secret]) -> Iterator[tuple[str, str]]:
    """Yield the secrets that a task cannot get: the name of each, and the reason with the remedy."""
    files: list[str] = []
    for secret in secrets:
        if secret.name.startswith("MESOS_") or secret.name in _RESERVED:
            yield secret.name, "is a variable that Mesos or the executor sets for tasks; choose another name"
        if secret.file and any(_collide(secret.file, other) for other in files):
            yield (
                secret.name,
                f"its file {secret.file} collides with the file of another secret; choose another path",
            )
        files += [secret.file] if secret.file else []


def _collide(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")
