"""Check of files that others must not read or change: modes, parent directories, access control lists.

`KEPT` lists the files; a further entry is checked and named like the others.
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
MAX_FILES: Final = 10_000  # most files of a directory that are looked at
MAX_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """A file or directory with private content, named by an environment variable.

    Attributes:
        what: Name of the content, for messages.
        variable: Environment variable with the path.
        alone: Whether the parent directory must have mode 0700, too.
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
    """Yield the findings on files that the environment names, and on this node's ledger and keys."""
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
                CHECK, Level.WARN, f"{what}: {path} does not exist", "correct the variable that names it"
            )
    yield from _persistent_root(host)
    yield Finding(CHECK, Level.OK, f"{looked} private files and directories were checked")


def _persistent_root(host: Host) -> Iterator[Finding]:
    """Check the directory of persistent volumes; contents of the volumes belong to tasks."""
    if not (named := host.env.get(SETTING)):
        return
    try:
        with PersistentRoot(str(host.below(Path(named)))):
            pass
    except BadConfiguration as error:
        yield Finding(CHECK, Level.FAIL, error.what, error.remedy)


def look_at_work_dir(host: Host, flags: Mapping[str, str], check: str) -> Iterator[Finding]:
    """Check that an agent's work directory hides tasks' environments, and has the access control lists that
    sandboxes need.

    Args:
        host: The host that is checked.
        flags: Flags of the host's Mesos agent.
        check: Name of the check in the findings.
    """
    path = Path(flags.get("work_dir") or "")
    if not path.is_absolute():
        return
    meta = path / "meta"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not has_acls(str(host.below(path))):
            text = f"only jobs of root can start: the file system of {path} has no access control lists"
            yield Finding(check, Level.FAIL, text, "put the agent's work_dir on ext4, xfs or btrfs")
        # The agent's checkpoints hold the environment of every task, and Mesos makes their directory 0755.
        if all(host.below(directory).stat().st_mode & stat.S_IXOTH for directory in (meta, *meta.parents)):
            text = f"every user of this host can read below {meta}, which holds the environment of tasks"
            yield Finding(check, Level.WARN, text, f"chmod 700 {meta}")


def open_to_others(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the path and those below it that others than the owner can read or change by mode, each with its
    mode.

    Modes of parent directories, which may prevent access, are ignored.
    """
    for _, entry in zip(range(MAX_FILES + 1), chain([path], path.rglob("*")), strict=False):
        # such as the log of a database that was closed meanwhile
        with contextlib.suppress(FileNotFoundError):
            status = entry.lstat()
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
                yield entry, stat.S_IMODE(status.st_mode)


def seen_by_others(path: Path, what: str, *, alone: bool) -> Iterator[Finding]:
    """Yield the findings on the modes of a path; none if they are right.

    Args:
        what: Name of the content, as in `Kept`.
        alone: Whether the parent directory must have mode 0700.
    """
    if wrong := list(open_to_others(path)):
        more = f" and {len(wrong) - MAX_SHOWN} more" if len(wrong) > MAX_SHOWN else ""
        shown = ", ".join(f"{entry} ({mode:04o})" for entry, mode in wrong[:MAX_SHOWN])
        recursive = "-R " if path.is_dir() else ""
        yield Finding(
            CHECK,
            Level.FAIL,
            f"{what}: others can read or change {shown}{more}",
            f"chmod {recursive}go= {path}",
        )
    elif alone and not path.is_dir() and stat.S_IMODE(path.parent.stat().st_mode) & 0o077:
        text = f"{what}: its directory {os.fspath(path.parent)} is open to others"
        yield Finding(
            CHECK, Level.WARN, text, f"keep it in a directory of mode 0700: chmod 700 {path.parent}"
        )
