"""Program of the process that joins a task; `joining` runs this file in an interpreter of its own.

It starts again for each check, so it imports next to nothing: signal, json and dataclasses alone would double
its cost. Its order is a dict in marshal's format, which comes from the same interpreter.
"""

import ctypes
import marshal
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from isolator.confinement import apart_sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 1, 4, 38, 24  # linux/prctl.h
TIOCSCTTY = 0x540E  # asm-generic/ioctls.h; the same on all architectures that agents run on
_LAST_CAP = 63
_CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
_SIGKILL = 9
_PATH = "/usr/local/bin:/usr/bin:/bin"
_NOT_THERE = (2, 20)  # ENOENT, ENOTDIR
_IGNORED = (13, 25)  # SIGPIPE, SIGXFSZ: Python ignores them, and exec would inherit that


def _become(
    argv: tuple[str, ...],
    env: dict[str, str],
    cgroups: tuple[str, ...],
    namespaces: tuple[int, ...],
    forks: bool,
    root: int,
    directory: int,
    user: tuple[int, int, tuple[int, ...]],
    capabilities: int,
    no_new_privileges: bool,
    domain: bool,
    signals: bool,
    program: bytes,
    streams: tuple[int, ...],
    terminal: bool,
    work: str,
) -> None:
    """Become the command. Order of steps: join cgroups while their files are visible, enter the task's view,
    give up rights, exec.
    """
    os.umask(0o022)
    # imported now, as the file is out of sight later
    does = __import__(work, fromlist=["main"]).main if work else None
    if terminal:
        import fcntl  # noqa: F401 # imported now, as its file may be out of sight later
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    _enter_cgroups(cgroups)
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in namespaces:
        _check(libc.setns(namespace, 0), "setns")
    if forks:
        _fork()
    if namespaces or os.stat(root) != os.stat("/"):
        os.fchdir(root)
        os.chroot(".")
    os.fchdir(directory)
    _drop(libc, user, capabilities, no_new_privileges)
    if domain:
        apart_sys.enter_domain(signals=signals)
    if program:
        apart_sys.install(program)
    if forks:
        _check(libc.prctl(PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "prctl")
    for number in _IGNORED if does is None else ():
        libc.signal(number, None)
    for inherited in (*namespaces, root, directory):
        os.set_inheritable(inherited, False)
    if does is not None:
        # so that no process of the task can read its memory
        _check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl")
        _work(does, argv, streams, leads=not forks)
    if streams:
        _exec(argv, env, streams, leads=not forks, terminal=terminal)
    os.execve(argv[0], argv, env)


def _enter_cgroups(cgroups: tuple[str, ...]) -> None:
    for group in cgroups:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write("0")


def _work(
    does: "Callable[[tuple[str, ...]], int]", argv: tuple[str, ...], streams: tuple[int, ...], *, leads: bool
) -> None:
    """Run a function of ours in the task's place, without a program of the task. Does not return."""
    if not leads:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)  # this closes the pipe for failures, which shows that it has begun
    os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
    code = 1
    try:
        code = does(argv)
    except Exception as error:  # noqa: BLE001 - a traceback would read source files of the task
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(code)  # not sent to the pipe for failures, as joining has succeeded


def _exec(
    argv: tuple[str, ...], env: dict[str, str], streams: tuple[int, ...], *, leads: bool, terminal: bool
) -> None:
    """Execute a command with streams of its own; if it fails, write the reason to the pipe for failures. Does
    not return.
    """
    if not leads:
        os.setsid()  # the parent leads the current session
    if terminal:
        import fcntl

        fcntl.ioctl(streams[0], TIOCSCTTY, 0)
    fails = os.dup(1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams):
        os.close(stream)
    number, why = 2, f"{argv[0]}: No such file or directory"
    for path in (
        [argv[0]] if "/" in argv[0] else [f"{at}/{argv[0]}" for at in env.get("PATH", _PATH).split(":")]
    ):
        try:
            os.execve(path, argv, env)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                number, why = error.errno or 0, f"{path}: {error.strerror}"
    os.write(fails, why.encode(errors="replace"))
    os._exit(127 if number in _NOT_THERE else 126)


def _fork() -> None:
    """Continue in a child; the parent exits with the child's status."""
    pid = os.fork()
    if pid == 0:
        return
    os.close(1)  # the child has the pipe for failures, whose end must be seen
    os.close(2)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def _drop(
    libc: ctypes.CDLL,
    user: tuple[int, int, tuple[int, ...]],
    capabilities: int,
    no_new_privileges: bool,
) -> None:
    """Give up all rights that the task does not have."""
    if no_new_privileges:
        _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    uid, gid, groups = user
    if os.geteuid() == 0:
        for capability in range(_LAST_CAP + 1):
            if not capabilities >> capability & 1:
                # EINVAL for capabilities that the kernel does not have
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups(groups)
    if (uid, gid) != (os.geteuid(), os.getegid()):
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if uid == 0:  # the bounding set would take effect at an exec only, which does not follow here
        _keep_capabilities(libc, capabilities)


def _keep_capabilities(libc: ctypes.CDLL, most: int) -> None:
    """Remove capabilities from the current sets."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: capabilities 0 to 31, then 32 to 63
    _check(libc.capget(header, sets), "capget")
    for at in range(6):
        sets[at] &= (most >> (32 * (at // 3)) & 0xFFFFFFFF) if at % 3 != 2 else 0
    _check(libc.capset(header, sets), "capset")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Read the order from standard input and become what it says; does not return."""
    try:
        with open(0, "rb", closefd=False) as file:
            order = marshal.load(file)  # nosec B302 # from the executor that started this process, by a pipe
        _become(**order)
    except OSError as error:
        os.write(1, f"cannot join the task: {error.strerror}".encode())
    os._exit(125)


if __name__ == "__main__":
    main()
