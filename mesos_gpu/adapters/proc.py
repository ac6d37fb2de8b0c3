"""Identification of this host's processes by id and start time, because ids are reused."""

from pathlib import Path


def boot_id() -> str:
    """Return an id that changes at each boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if there is no such process, or it is a
    zombie.

    Source: proc_pid_stat(5); the command's name (field 2) can contain any bytes, prctl(2).
    """
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])
