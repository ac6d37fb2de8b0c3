"""Processes of this host, unmistakably: a process id is used again, an id with its start time is not."""

from pathlib import Path


def boot_id() -> str:
    """Changes at each boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is none, or it is a zombie.

    Source: proc_pid_stat(5); the command's name (field 2) is whatever bytes the process likes, prctl(2).
    """
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
