"""The archive's `__main__`: `python3 -IS mesos-gpu-executor.pyz executor|monitor|keeper`.

What an agent starts, it starts for each task: so this says where the unpacked files are, and goes on there. Only the
first start on a host unpacks. Nothing is imported from the archive itself while a task runs.
"""

import _frozen_importlib_external
import contextlib
import fcntl
import marshal
import os
import sys

DIGEST = ""  # of all that is in the archive, hexadecimal; the builder writes it here
PROGRAMS = ("doctor", "executor", "keeper", "monitor", "nvml", "probe")


def tree(env: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """The directory for this archive's files, by this Python, on this host."""
    node = env.get("MESOS_GPU_NODE_DIR") or "/var/lib/mesos-gpu"
    return os.path.join(os.path.abspath(node), "programs", f"{DIGEST}-{sys.implementation.cache_tag}")


def fault(path: str) -> str:
    """Why nothing is to be run from a directory: somebody else could change it; "": all is well."""
    for each in (path, os.path.dirname(path)):
        status = os.lstat(each)
        if status.st_mode & 0o170022 != 0o040000:  # a directory that neither group nor others may write
            return f"{each} is no directory that only its owner can write"
        if status.st_uid not in (0, os.geteuid()):
            return f"{each} belongs to uid {status.st_uid}"
    return ""


def hold(path: str) -> bool:
    """Hold a directory until this process ends, so that it is not removed as one of an old release
    (isolator/node/programs.py), and note that it was used now; False: it has just been removed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(handle, fcntl.LOCK_SH)
    if not os.path.isdir(path) or not os.path.samestat(os.fstat(handle), os.stat(path)):
        os.close(handle)
        return False
    with contextlib.suppress(FileNotFoundError):  # its files are here: it is not needed any more
        archive = os.open(sys.path[0], os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(archive, fcntl.LOCK_SH)
    for each in (path, sys.path[0]):
        if os.path.dirname(each) == os.path.dirname(path) and os.access(each, os.W_OK):
            os.utime(each)
    return True


def flat(path: str) -> None:
    """Take modules from the one file that has those of executors (mesos_gpu/install/flat.py), if it is there."""
    try:
        with open(os.path.join(path, "programs.flat"), "rb") as file:
            magic, packed = file.read(4), file.read()
    except FileNotFoundError:
        return
    if magic == _frozen_importlib_external.MAGIC_NUMBER:
        loader, index = marshal.loads(packed)  # nosec B302 # of the archive that this is of
        exec(loader, {"INDEX": index, "DATA": packed, "ROOT": path})  # nosec B102 # as above


def main() -> int:
    """Go on in the unpacked files."""
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
            print(f"mesos-gpu-executor runs nothing from there: {why}", file=sys.stderr)
            return 1
        if hold(path):
            break
    sys.path[0] = path
    flat(path)
    from isolator.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
