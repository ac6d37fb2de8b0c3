"""Users for jobs that name none: each task of the host gets a uid of its own, from a range that an operator gives.

The ledger holds the uid with the task, so no two living tasks have one, whatever is killed when. It is given back when
no process of it is left; the task's sandbox is closed then, for the next task of that uid.
A uid needs no account: the home is the sandbox, the group has the same number. Mesos itself knows users by name only,
so images that the agent runs need accounts, which are to be named mesos-gpu-UID; a uid with another account, and one
whose number is a group's, is left out.
"""

import contextlib
import grp
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from typing import Final

from isolator.host.hardening import Answer
from isolator.host.sandbox import Sandbox
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.user_pool import POOL, parse_pool

#: In the environment that an executor works with: what its task got.
UID: Final = "MESOS_GPU_POOL_UID"
KIND: Final = "uid"  # of the trace: the uid, a blank, the sandbox
_GONE_S: Final = 5.0


def pool_of(own: Mapping[str, str]) -> range:
    """The operator's range; empty: there is none.

    Raises:
        BadConfiguration: It is no range, or goes over users of the system.
    """
    try:
        return parse_pool(own.get(POOL, ""))
    except ValueError as error:
        raise BadConfiguration(f"{POOL}: {error}", remedy="correct it, or unset it for no pool") from error


def candidates(pool: range) -> Iterator[int]:
    """Uids that nobody else has, beginning anywhere: one that was given back is rarely the next to be given."""
    busy = {uid for _, uid in _processes()}
    start = int.from_bytes(os.urandom(8)) % len(pool)
    for place in range(len(pool)):
        uid = pool[(start + place) % len(pool)]
        if uid not in busy and is_free(uid):
            yield uid


def is_free(uid: int) -> bool:
    """Whether no account but one that was made for it has the uid, and no other group its number."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name == name_of(uid)
    with contextlib.suppress(KeyError):
        return grp.getgrgid(uid).gr_name == name_of(uid)
    return True


def name_of(uid: int) -> str:
    """The name of a uid's account, if it has one."""
    return f"mesos-gpu-{uid}"


def has_account(user: pwd.struct_passwd) -> bool:
    """Whether the host knows the user by name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(user.pw_name).pw_uid == user.pw_uid
    return False


def account(uid: int, sandbox: str) -> pwd.struct_passwd:
    """The account of a uid, or what stands for it."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid)
    return pwd.struct_passwd((name_of(uid), "x", uid, uid, "", sandbox, "/bin/sh"))


def give_back(what: str) -> list[int]:
    """Undo the trace of a uid: see that nothing of it lives, and close its sandbox.

    Returns:
        Processes of it that are still there; then it is not to be given to others.

    Raises:
        OSError: The sandbox cannot be closed.
    """
    text, _, sandbox = what.partition(" ")
    deadline = time.monotonic() + _GONE_S
    while left := [pid for pid, uid in _processes() if uid == int(text)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    with contextlib.suppress(FileNotFoundError), Sandbox(sandbox) as place:
        place.shut()
    return []


def _processes() -> Iterator[tuple[int, int]]:
    """Pid and real uid of each that is no zombie."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{name}/status", errors="replace") as file,
        ):
            said = dict(line.split(":\t", 1) for line in file if line.startswith(("State:", "Uid:")))
            if said["State"][0] not in "ZX":
                yield int(name), int(said["Uid"].split()[0])


def look(own: Mapping[str, str]) -> Answer:
    """Look at the pool, for the doctor.

    Raises:
        BadConfiguration: As of `pool_of`.
    """
    pool = pool_of(own)
    if not pool:
        return Answer(
            "jobs that name no user all run as one, the scheduler's --default-user: they read, change and end each "
            "other's files and processes as far as modes and the kernel let them",
            f"give each a uid of its own: {POOL}=60000-60999 on the agent, or --user-pool of the scheduler",
        )
    lacking = sum(not is_free(uid) for uid in pool[:10000])
    if lacking:
        return Answer(
            f"{lacking} of the {len(pool)} uids of {POOL} belong to others",
            "name a range that no account and no group is in",
        )
    return Answer(f"{len(pool)} uids for jobs that name no user, one for each task")
