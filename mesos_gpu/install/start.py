"""The archive's `__main__`: `python3 -IS mesos-gpu-executor.pyz executor|monitor|keeper`.

An agent runs this for each task, so it only finds the unpacked files and continues there; the first start on a host
unpacks them. While a task runs, nothing is imported from the archive itself.
"""

import _frozen_importlib_external
import contextlib
import fcntl
import marshal
import os
import sys

DIGEST = ""  # hexadecimal digest of the archive's content, inserted by the builder
PROGRAMS = ("doctor", "executor", "keeper", "monitor", "nvml", "probe")


def tree(env: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Return the directory for this archive's files on this host, for this version of Python."""
    node = env.get("MESOS_GPU_NODE_DIR") or "/var/lib/mesos-gpu"
    return os.path.join(os.path.abspath(node), "programs", f"{DIGEST}-{sys.implementation.cache_tag}")


def fault(path: str) -> str:
    """Return why a directory is unsafe to run programs from (others could change it); "" if it is safe."""
    for directory in (path, os.path.dirname(path)):
        status = os.lstat(directory)
        if status.st_mode & 0o170022 != 0o040000:  # a directory that neither group nor others may write
            return f"{directory} is not a directory that only its owner can write"
        if status.st_uid not in (0, os.geteuid()):
            return f"{directory} belongs to uid {status.st_uid}"
    return ""


def hold(path: str) -> bool:
    """Lock a directory against removal as an old release (isolator/node/programs.py) until this process ends.

    Its time of use is updated. Return False if the directory has just been removed.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(handle, fcntl.LOCK_SH)
    if not os.path.isdir(path) or not os.path.samestat(os.fstat(handle), os.stat(path)):
        os.close(handle)
        return False
    with contextlib.suppress(FileNotFoundError):  # the archive may be gone: its files are unpacked
        archive = os.open(sys.path[0], os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(archive, fcntl.LOCK_SH)
    for entry in (path, sys.path[0]):
        if os.path.dirname(entry) == os.path.dirname(path) and os.access(entry, os.W_OK):
            os.utime(entry)
    return True


def flat(path: str) -> None:
    """Import modules of executors from the flat file (mesos_gpu/install/flat.py) of a directory, if there is one."""
    try:
        with open(os.path.join(path, "programs.flat"), "rb") as file:
            magic, packed = file.read(4), file.read()
    except FileNotFoundError:
        return
    if magic == _frozen_importlib_external.MAGIC_NUMBER:
        loader, index = marshal.loads(packed)  # nosec B302 # from the archive of this program
        exec(loader, {"INDEX": index, "DATA": packed, "ROOT": path})  # nosec B102 # as above


def main() -> int:
    """Run the program from the unpacked files."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whichever Python the host has runs this
        print(
            f"mesos-gpu-executor needs Python 3.11 or later; this is {sys.version.split()[0]}",
            file=sys.stderr,
        )
        return 1
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        print(f"usage: python3 -IS {sys.argv[0]} executor|monitor|keeper|doctor", file=sys.stderr)
        return 2
    path = tree()
    while True:
        if not os.path.isdir(path):
            from mesos_gpu_unpack import unpack

            unpack(sys.path[0], path)
        try:
            why = fault(path)
        except FileNotFoundError:  # it has just been removed
            continue
        if why:
            print(f"mesos-gpu-executor refuses to run the unpacked files: {why}", file=sys.stderr)
            return 1
        if hold(path):
            break
    sys.path[0] = path
    flat(path)
    from isolator.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
