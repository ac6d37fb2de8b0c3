"""Files that hold what others must not read, or change: modes, those of their directories, access control lists.

`KEPT` is the list. An entry more is checked, and named, like the others.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from isolator.host.sandbox import has_acls
from isolator.node.findings import Finding, Host, Level
from isolator.persistent.root import SETTING, PersistentRoot
from isolator.secrets import keys
from mesos_gpu.errors import BadConfiguration

CHECK: Final = "files"
MAX_FILES: Final = 10_000  # of a directory that are looked at
MAX_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept in a file, or in the files of a directory.

    Attributes:
        what: In words.
        variable: Of the environment, that names it.
        alone: Whether its directory has to be 0700, too.
    """

    what: str
    variable: str
    alone: bool = True


KEPT: Final = (
    Kept("the scheduler's state", "MESOS_GPU_STATE"),
    Kept("the journal", "MESOS_GPU_JOURNAL"),
    Kept("the audit log", "MESOS_GPU_AUDIT"),
    Kept("users' secrets", "MESOS_GPU_SECRETS_DIR"),
    Kept("Vault's token", "MESOS_GPU_VAULT_TOKEN_FILE", alone=False),
    Kept("credentials for the agent", "MESOS_GPU_AGENT_CREDENTIALS", alone=False),
)


def private_files(host: Host) -> Iterator[Finding]:
    """Look at what the environment names, and at this node's ledger and keys."""
    looked = 0
    own = (
        (host.directory / "ledger.sqlite", "the ledger", True),
        (host.directory / keys.NAME, "the keys that secrets are sealed to", True),
    )
    paths = [
        (host.below(Path(host.env[k.variable])), k.what, k.alone) for k in KEPT if host.env.get(k.variable)
    ]
    for path, what, alone in (*paths, *own):
        if path.exists():
            looked += 1
            yield from seen_by_others(path, what, alone=alone)
        elif (path, what, alone) in paths:
            yield Finding(
                CHECK, Level.WARN, f"{what}: {path} is not there", "correct the variable that names it"
            )
    yield from _persistent_root(host)
    yield Finding(CHECK, Level.OK, f"{looked} looked at that others must not read")


def _persistent_root(host: Host) -> Iterator[Finding]:
    """Check the directory of persistent volumes, whose contents are the tasks' own."""
    if not (named := host.env.get(SETTING)):
        return
    try:
        with PersistentRoot(str(host.below(Path(named)))):
            pass
    except BadConfiguration as error:
        yield Finding(CHECK, Level.FAIL, error.what, error.remedy)


def look_at_work_dir(host: Host, flags: Mapping[str, str], check: str) -> Iterator[Finding]:
    """Check that the directory of an agent keeps the environment of tasks from others, and its sandboxes root's.

    Args:
        host: To look at.
        flags: Of the host's Mesos agent.
        check: Name of the findings.
    """
    path = Path(flags.get("work_dir") or "")
    if not path.is_absolute():
        return
    meta = path / "meta"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not has_acls(str(host.below(path))):
            text = f"jobs start as root alone: the file system of {path} has no access control lists"
            yield Finding(check, Level.FAIL, text, "put the agent's work_dir on ext4, xfs or btrfs")
        # The agent's checkpoints hold the environment of every task, and Mesos makes their directory 0755.
        if all(host.below(each).stat().st_mode & stat.S_IXOTH for each in (meta, *meta.parents)):
            text = f"everybody of this host can read below {meta}: it holds the environment of tasks"
            yield Finding(check, Level.WARN, text, f"chmod 700 {meta}")


def open_to_others(path: Path) -> Iterator[tuple[Path, int]]:
    """The path, and what is below it, that others than the owner can read or change, whatever keeps them from getting
    there; each with its mode."""
    for _, each in zip(range(MAX_FILES + 1), chain([path], path.rglob("*")), strict=False):
        with contextlib.suppress(FileNotFoundError):  # as the log of a database that was closed meanwhile
            status = each.lstat()
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
                yield each, stat.S_IMODE(status.st_mode)


def seen_by_others(path: Path, what: str, *, alone: bool) -> Iterator[Finding]:
    """What is wrong with the modes of a path; nothing if they are right. `what`, `alone`: as of `Kept`."""
    if wrong := list(open_to_others(path)):
        more = f" and {len(wrong) - MAX_SHOWN} more" if len(wrong) > MAX_SHOWN else ""
        shown = ", ".join(f"{each} ({mode:04o})" for each, mode in wrong[:MAX_SHOWN])
        recursive = "-R " if path.is_dir() else ""
        yield Finding(
            CHECK, Level.FAIL, f"{what}: others can read {shown}{more}", f"chmod {recursive}go= {path}"
        )
    elif alone and not path.is_dir() and stat.S_IMODE(path.parent.stat().st_mode) & 0o077:
        text = f"{what}: its directory {os.fspath(path.parent)} is not its owner's alone"
        yield Finding(
            CHECK, Level.WARN, text, f"keep it in a directory of mode 0700: chmod 700 {path.parent}"
        )
