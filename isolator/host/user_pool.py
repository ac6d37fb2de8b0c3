"""User pool: each task of a job that names no user gets a uid of its own, from a range that an operator
gives.

The ledger records the uid with the task, so no two living tasks have the same, whatever is killed when. It is
given back when no process with it is left; the task's sandbox is closed then to the next task with that uid.

A uid needs no account: the home is the sandbox, the group has the same number. Mesos itself knows users only
by name, so images that the agent runs need accounts, which must be named mesos-gpu-UID; a uid with another
account, and one whose number is a group's, is not used.
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

#: Variable in the environment that an executor works with: the uid of its task.
UID: Final = "MESOS_GPU_POOL_UID"
KIND: Final = "uid"  # kind of a trace, which contains the uid, a blank, and the sandbox
_GONE_S: Final = 5.0


def pool_of(own: Mapping[str, str]) -> range:
    """Return the operator's range of uids; empty without a pool.

    Raises:
        BadConfiguration: It is not a range, or includes uids of system users.
    """
    try:
        return parse_pool(own.get(POOL, ""))
    except ValueError as error:
        raise BadConfiguration(f"{POOL}: {error}", remedy="correct it, or unset it for no pool") from error


def candidates(pool: range) -> Iterator[int]:
    """Yield uids that are not in use, starting at a random one, so that one that was given back is rarely the
    next.
    """
    busy = {uid for _, uid in _processes()}
    start = int.from_bytes(os.urandom(8)) % len(pool)
    for place in range(len(pool)):
        uid = pool[(start + place) % len(pool)]
        if uid not in busy and is_free(uid):
            yield uid


def is_free(uid: int) -> bool:
    """Return whether the uid has no account other than one made for it, and its number is no other group's."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name == name_of(uid)
    with contextlib.suppress(KeyError):
        return grp.getgrgid(uid).gr_name == name_of(uid)
    return True


def name_of(uid: int) -> str:
    """Return the name of a uid's account, if it has one."""
    return f"mesos-gpu-{uid}"


def has_account(user: pwd.struct_passwd) -> bool:
    """Return whether the host knows the user by name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(user.pw_name).pw_uid == user.pw_uid
    return False


def account(uid: int, sandbox: str) -> pwd.struct_passwd:
    """Return the account of a uid, or a substitute if it has none."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid)
    return pwd.struct_passwd((name_of(uid), "x", uid, uid, "", sandbox, "/bin/sh"))


def give_back(what: str) -> list[int]:
    """Undo the trace of a uid: wait until none of its processes lives, and close its sandbox.

    Returns:
        Pids of processes that still exist; the uid must not be given to others then.

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
    """Yield pid and real uid of each process that is no zombie."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{name}/status", errors="replace") as file,
        ):
            fields = dict(line.split(":\t", 1) for line in file if line.startswith(("State:", "Uid:")))
            if fields["State"][0] not in "ZX":
                yield int(name), int(fields["Uid"].split()[0])


def look(own: Mapping[str, str]) -> Answer:
    """Return the doctor's answer on the user pool.

    Raises:
        BadConfiguration: As for `pool_of`.
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
            "choose a range without accounts and groups",
        )
    return Answer(f"{len(pool)} uids for jobs that name no user, one for each task")
