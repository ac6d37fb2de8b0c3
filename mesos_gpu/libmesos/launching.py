"""The helper `mesos-containerizer launch` for containers on the host's own file system, as executors have.

Mesos' own code (MesosContainerizerLaunch, launch.cpp) makes each container link a library of 50 MB. A container that
asks for no mounts, namespaces, limits, capabilities or terminal needs little: wait until the agent has put it into its
cgroups, switch to the user, and run the command as a child, whose end is recorded. That is done here; every other
container, and each other subcommand, goes to `containerizer`.

This program starts once for each container, so it imports next to nothing: `_signal` and `_json` are the C parts of
`signal` and `json`.
"""

import _json
import _signal  # type: ignore[import-not-found]  # typeshed has it as signal alone
import os
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

PREFIX: Final = "MESOS_CONTAINERIZER_"
#: Flags of `launch` that this module supports; they come in the environment.
FLAGS: Final = frozenset({"LAUNCH_INFO", "PIPE_READ", "PIPE_WRITE", "RUNTIME_DIRECTORY"})
#: Flags that agents may also give, and that must be false here.
OFF: Final = frozenset({"HELP", "UNSHARE_NAMESPACE_MNT"})
#: Fields of ContainerLaunchInfo (containerizer.proto) that are supported. clone_namespaces: the agent has cloned them.
FIELDS: Final = frozenset({"clone_namespaces", "command", "environment", "user", "working_directory"})
#: Fields that agents may also give, and that must be empty here.
EMPTY: Final = frozenset({"task_environment"})
CLONE_NEWNS: Final = 0x20000  # linux/sched.h
EXECUTOR: Final = "mesos-gpu-executor"  # name of the script beside this helper
STATUS: Final = "status"  # file in the runtime directory (containerizer/mesos/paths.hpp)
POSIX_SIGNALS, SIGNALS = 32, 65  # from number 32 on, the C library may refuse a handler


class Failed(Exception):
    """The container cannot start; the text is for its standard error."""


def main(library: str, argv: list[str], cgroup2: str = "", executor: str = "") -> int:
    """Run a subcommand of mesos-containerizer, and return its exit status.

    Args:
        library: Path of the library of Mesos.
        argv: Arguments as the agent gives them: program name, subcommand, flags.
        cgroup2: Prefix of the agents' cgroups v2, as for `containerizer.main`.
        executor: Shell command of this package's executor. A container with exactly this command continues as the
            executor in this interpreter, which saves starting another one; "" to always run a shell.
    """
    flags = {name[len(PREFIX) :]: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    info = plain(flags) if argv[1:] == ["launch"] else None
    if info is None:
        from mesos_gpu.libmesos.containerizer import main as run

        return run(library, argv, cgroup2)
    if cgroup2:
        from mesos_gpu.libmesos.cgroup2 import enter

        try:
            enter(cgroup2, argv[0])
        except OSError as error:
            print(f"mesos: no cgroup v2 for the container: {error}", file=sys.stderr)
            return 1
    return launch(info, flags, executor, argv[0])


def plain(flags: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the ContainerLaunchInfo of a plain container; None if it needs features that are not supported here.

    Args:
        flags: Flags of `launch` from the environment, without their prefix.
    """
    if flags.keys() - OFF != FLAGS or any(flags.get(name, "false") != "false" for name in OFF):
        return None
    if not (flags["PIPE_READ"].isdecimal() and flags["PIPE_WRITE"].isdecimal()):
        return None
    if not flags["RUNTIME_DIRECTORY"].startswith("/"):
        return None
    info = decoded(flags["LAUNCH_INFO"])
    if not isinstance(info, dict) or any(info.get(name) for name in EMPTY) or info.keys() - EMPTY - FIELDS:
        return None
    if CLONE_NEWNS in info.get("clone_namespaces", ()):
        return None
    command = info.get("command", {})
    if not (command.get("shell", True) and command.get("value")) or "PATH" not in environment(info):
        return None
    return info


def environment(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a container; the last of two variables with one name counts."""
    variables = info.get("environment", {}).get("variables", ())
    return {variable["name"]: variable.get("value", "") for variable in variables}


def decoded(text: str) -> Any:
    """Decode JSON as `json.loads` does; None if it is not JSON."""
    try:
        value, end = _json.make_scanner(_Plain)(text, 0)  # type: ignore[arg-type]
    except (ValueError, StopIteration):
        return None
    return None if text[end:].strip() else value


class _Plain:
    """Settings of json.JSONDecoder() for the C scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = {"NaN": None}.get
    memo: dict[str, str] = {}


def launch(info: Mapping[str, Any], flags: Mapping[str, str], executor: str, program: str) -> NoReturn:
    """Wait for the agent, run the command as a child, record how it ended, and exit.

    Args:
        info: Launch info as returned by `plain`.
        flags: Flags of `launch`, as for `plain`.
        executor: Shell command of the executor, as for `main`.
        program: Path of the file that this process runs.
    """
    path = f"{flags['RUNTIME_DIRECTORY']}/{STATUS}"
    supervisor = _Supervisor(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        supervisor.listen()
        _await_agent(int(flags["PIPE_READ"]), int(flags["PIPE_WRITE"]))
        user = _user(info.get("user"))
        _enter(info.get("working_directory"))
        _become(user)
        blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        supervisor.child = os.fork()
        if supervisor.child == 0:
            _run_command(info, executor if user is None else "", program, blocked)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
        supervisor.wait()
    except (Failed, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        supervisor.end(1 << 8, 1)


class _Supervisor:
    """The process that the agent watches: it forwards signals to the command and records how it ended.

    Args:
        status: Descriptor of the status file, open for writing.
    """

    def __init__(self, status: int) -> None:
        self._status, self.child = status, 0

    def listen(self) -> None:
        """Forward signals to the command from now on; a signal before the command runs ends this process.

        Raises:
            OSError: A handler is refused.
        """
        for number in range(1, SIGNALS):
            if number in (_signal.SIGCHLD, _signal.SIGKILL, _signal.SIGSTOP):
                continue
            try:
                _signal.signal(number, self._forward)
            except (OSError, ValueError):  # the C library reserves some of the real-time signals
                if number < POSIX_SIGNALS:
                    raise

    def _forward(self, number: int, _: object) -> None:
        if not self.child:
            self.end(number, 1)
        try:
            os.kill(self.child, number)
        except OSError:
            return  # the command has just ended

    def wait(self) -> NoReturn:
        """Reap all children until the command ends."""
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == self.child:
                self.end(status, 0)

    def end(self, status: int, code: int) -> NoReturn:
        """Write a status in the form of wait(2) to the status file, and exit."""
        os.write(self._status, str(status).encode())
        os._exit(code)


def _await_agent(reads: int, writes: int) -> None:
    os.close(writes)
    if len(os.read(reads, 1)) != 1:
        raise Failed("Failed to synchronize with agent (it's probably exited)")
    os.close(reads)


def _user(name: str | None) -> tuple[int, int, list[int]] | None:
    """Return uid, gid and all groups to switch to; None if this process has that user already."""
    if name is None:
        return None
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Failed(f"Failed to get the uid of user '{name}': not found") from None
    if entry.pw_uid == os.geteuid():
        return None
    return entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid)


def _enter(directory: str | None) -> None:
    if directory is None:
        return
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        print(f"Failed to create working directory '{directory}': {error}", file=sys.stderr, flush=True)
    os.chdir(directory)


def _become(user: tuple[int, int, list[int]] | None) -> None:
    if user is not None:
        uid, gid, groups = user
        os.setgid(gid)
        os.setgroups(groups)
        os.setuid(uid)


def _run_command(info: Mapping[str, Any], executor: str, program: str, blocked: Any) -> NoReturn:
    """Run the command in the child, with signals, files and variables as after an execve(2)."""
    code = 1
    try:
        for number in range(1, SIGNALS):
            if _signal.getsignal(number) not in (None, _signal.SIG_DFL, _signal.SIG_IGN):
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        command, variables = info["command"]["value"], environment(info)
        if command == executor and _show_in_proc(f"{os.path.dirname(program)}/{EXECUTOR}", variables):
            code = _execute(variables)
        else:
            _shell(command, variables)
    except OSError as error:
        print(f"Failed to execute 'sh': {error}", file=sys.stderr)
    except BaseException:  # noqa: BLE001 - reported as by an interpreter that ends; callers must not continue here
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _shell(command: str, variables: Mapping[str, str]) -> NoReturn:
    """Execute a shell. os.execvpe is avoided: it imports modules that the container's user may not be able to read.

    Raises:
        OSError: The container's PATH has no shell.
    """
    for directory in filter(None, variables["PATH"].split(":")):
        try:
            os.execve(f"{directory}/sh", ["sh", "-c", command], variables)
        except OSError:
            continue
    raise FileNotFoundError(2, f"no such program in {variables['PATH']}")


def _execute(variables: Mapping[str, str]) -> int:
    """Run the executor with the state of a newly started interpreter. Return its exit status."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    os.environ.clear()
    os.environ.update(variables)
    from isolator.executor.main import main as run

    return run()


def _show_in_proc(program: str, env: Mapping[str, str]) -> bool:
    """Show the executor's command line and environment in /proc, in place of this process' own.

    ps(1), the clean-up of a cluster and the peer checks of the scheduler's socket identify processes by them. The
    kernel reads them from this process' own memory, which is overwritten. Return False if there is not enough room.
    """
    import ctypes

    with open("/proc/self/stat") as file:  # proc(5): arg_start, arg_end, env_start, env_end
        places = [int(word) for word in file.read().rpartition(")")[2].split()[45:49]]
    sys.argv[:] = [program]
    words = b"\0".join(map(os.fsencode, (sys.executable, "-IS", program)))
    variables = b"\0".join(os.fsencode(f"{name}={value}") for name, value in env.items())
    texts = ((words, places[0], places[1]), (variables, places[2], places[3]))
    if not all(begin > 0 and len(text) < end - begin for text, begin, end in texts):
        return False
    os.environ.clear()  # the C library's variables were in the overwritten memory
    for text, begin, end in texts:
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
    with open("/proc/self/comm", "w") as file:
        file.write(os.path.basename(sys.executable))
    return True
