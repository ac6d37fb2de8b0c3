"""Tasks of one user on one host, or of a user pool: their environment, and the processes that their commands can
signal.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isolator.confinement.apart_sys import SCOPES_SINCE, landlock_abi
from isolator.runs.environment import PASSED
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.marathon import Marathon
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, command
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.e2e.hosts.test_tries import FORMS, PYTHON, images

__all__ = ["images"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
#: Environment of the agent: typical variables of operators, and settings of mesos_gpu.
CANARIES = {
    "https_proxy": "http://user:CANARY@proxy:3128",
    "AWS_SECRET_ACCESS_KEY": "CANARY",
    "KUBECONFIG": "CANARY",
    "MESOS_GPU_VOLUME_ROOTS": "/CANARY",
    "MESOS_GPU_FETCH_LIMIT": "77777",
    "MESOS_CREDENTIAL": "CANARY",
    "LIBPROCESS_SSL_KEY_FILE": "/CANARY",
    "LD_PRELOAD_OF_AGENT": "CANARY",
}
GIVEN = {
    "MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_SANDBOX", "MESOS_TASK_ID", "MESOS_GPU_JOB_ID",
    "MESOS_GPU_ATTEMPT", "MESOS_GPU_NOTICE", "MESOS_GPU_CHECKPOINT", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "PATH", "HOST", "NO_PROXY", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT",
}  # fmt: skip
#: Beside those, by the form of the task: a process of the host, and what the image, the agent and the engine add.
BESIDE: Mapping[str, set[str]] = {
    "process": {"MESOS_DIRECTORY", "HOME", "USER", "LOGNAME", "PYTHONUNBUFFERED", "LC_MESSAGES", "TZ"},
    "nested": {"PYTHONHOME"},
    "docker": {"PYTHONHOME", "HOME", "HOSTNAME"},
}


@dataclass(frozen=True)
class Place:
    """A cluster, and whether each of its tasks has a uid of its own; else they are nobody's."""

    stack: Stack
    pooled: bool


def each(*forms: str) -> pytest.MarkDecorator:
    """Parametrize a test with clusters and forms of tasks; `make test` runs processes on a plain cluster. Mesos runs
    images as users with an account only, which uids of a pool do not have."""
    pairs = [
        (how, form)
        for how in ("plain", "secure", "pool")
        for form in forms
        if (how, form) != ("pool", "nested")
    ]
    marks = {True: [], False: [pytest.mark.long]}
    rows = [pytest.param(*pair, marks=marks[pair == ("plain", "process")]) for pair in pairs]
    return pytest.mark.parametrize(("place", "form"), rows, indirect=True, scope="module")


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, open_directory: Path, images: Path, unstarted_engine: dockerd.Dockerd
) -> Iterator[Place]:
    how = request.param
    given = {**CANARIES, "NO_PROXY": "localhost", PASSED: "NO_PROXY", "LC_MESSAGES": "C", "TZ": "UTC"}
    pool = {"MESOS_GPU_USER_POOL": "62020-62039"} if how == "pool" else {}
    with Stack(
        open_directory / f"of-one-user-{how}",
        [NodeSpec(1)],
        images=images,
        devices="mesos",
        secure=how == "secure",
        executor_environment={**given, **pool, "MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket)},
    ) as stack:
        with client_of(stack, 1):
            pass
        yield Place(stack, bool(pool))


@contextmanager
def running(place: Place, form: str, **more: object) -> Iterator[str]:
    """Run a job of a form as the user `nobody` until the end of the block."""
    with Client(place.stack.reach) as client:
        client.patience_s = 60
        request = {"name": f"one-{form}", "cpus": 0.1, "mem_mib": 64, "user": "nobody", **FORMS[form]}
        job = client.submit({"command": "exec sleep 600", **request, **more})["id"]
        try:
            wait_until("it runs", lambda: client.job(job)["state"] == "running", 60)
            yield job
        finally:
            client.kill(job)
            wait_until("it has ended", lambda: client.job(job)["ended_at"], 60)


def run_in(place: Place, job: str, *argv: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a job, by `exec`."""
    ran = command("exec", "--url", place.stack.reach, job, "--", *argv)
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def python_of(form: str) -> str:
    return PYTHON if form == "process" else "/usr/bin/python3"


OF_PROGRAMS = {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}  # what shells and Python set themselves
NAMES = "import os; print(*sorted(os.environ)); print(*os.environ.values())"


@each(*FORMS)
def test_environment_of_a_task_is_what_the_documents_list(place: Place, form: str) -> None:
    """The names that a task and a command in it see are exactly those that docs/isolation.md lists; the values of the
    agent's other variables are nowhere."""
    script = f"{python_of(form)} -c '{NAMES}' > \"$MESOS_SANDBOX/seen\"; exec sleep 600"
    with running(place, form, command=script, env={"OWN": "1"}) as job:
        own = wait_until(
            "it says", lambda: run_in(place, job, "/bin/sh", "-c", 'cat "$MESOS_SANDBOX/seen"').stdout
        )
        of_command = run_in(place, job, python_of(form), "-c", NAMES)
    names = set(own.splitlines()[0].split())
    assert names - OF_PROGRAMS == {*GIVEN, *BESIDE[form], "OWN"}
    assert set(of_command.stdout.splitlines()[0].split()) - names <= {"MESOS_GPU_CHANNEL"}, of_command
    assert "CANARY" not in own + of_command.stdout
    documented = Path("docs/isolation.md").read_text()
    assert [name for name in sorted(GIVEN - {"NO_PROXY", "HOST"}) if f"`{name}`" not in documented] == []


# --- signals and limits of another's process

#: $1: a word of the victim's command line, $2 a signal. Says what kill(2) gave for each process with that word: 0, or
#: the errno; "none" if it sees none.
SIGNAL = """
import os, sys
word, number = sys.argv[1].encode(), int(sys.argv[2])
said = []
for name in os.listdir("/proc"):
    if not name.isdigit() or int(name) == os.getpid():
        continue
    try:
        words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0")
    except OSError:
        continue
    if words[:2] != [b"sleep", word]:
        continue
    try:
        os.kill(int(name), number)
        said.append(0)
    except OSError as error:
        said.append(error.errno)
print(*said or ["none"])
"""
scoped = pytest.mark.skipif(landlock_abi() < SCOPES_SINCE, reason="the kernel keeps signals in no domain")
#: Result of an attempt to signal a process of another task; a container of the engine sees no such process.
REFUSED = {"process": "1", "nested": "1", "docker": "none"}


@pytest.fixture(scope="module")
def victim(place: Place) -> Iterator[str]:
    """Run a task of the user `nobody` on the host; return a word of its command line, which all host processes see."""
    word = f"86{os.getpid()}"
    with running(place, "process", command=f"exec sleep {word}") as job:
        yield word
        with Client(place.stack.reach) as client:
            assert client.job(job)["state"] == "running", "the victim was ended"


@scoped
@each(*FORMS)
def test_command_in_a_task_signals_its_own_task_and_no_other(place: Place, victim: str, form: str) -> None:
    own = f"87{os.getpid()}"
    with running(place, form, command=f"sleep {own}; sleep 600") as job:
        python = python_of(form)
        for number in ("0", "9", "15"):
            ran = run_in(place, job, python, "-c", SIGNAL, victim, number)
            assert (ran.stdout.strip(), ran.stderr) == (REFUSED[form], "")
        ran = run_in(place, job, python, "-c", SIGNAL, own, "9")
        assert (ran.stdout, ran.stderr) == ("0\n", "")
        assert run_in(place, job, python, "-c", SIGNAL, own, "0").stdout == "none\n", "it was ended"
        below = run_in(place, job, "/bin/sh", "-c", "sleep 60 & kill -9 $! && wait $!; echo $?")
        assert below.stdout.strip() == "137"


@scoped
@each(*FORMS)
def test_check_of_a_task_signals_its_own_task_and_no_other(place: Place, victim: str, form: str) -> None:
    """A check is healthy if it can signal its own task and not the other one, also with the filter `auto`."""
    own = f"88{os.getpid()}"
    script = f'{python_of(form)} "$MESOS_SANDBOX/signal.py"'
    check = f'test "$({script} {victim} 9)" = {REFUSED[form]} && test "$({script} {own} 0)" = 0'
    write = f"cat > \"$MESOS_SANDBOX/signal.py\" <<'EOF'\n{SIGNAL}\nEOF\n"
    if form != "process":  # the image has no cat
        write = f"echo '{SIGNAL}' > \"$MESOS_SANDBOX/signal.py\"\n"
    app = {
        "id": f"/checked-{form}",
        "cmd": f"{write}sleep {own}; sleep 600",
        "cpus": 0.1,
        "mem": 64,
        "user": "nobody",
        "healthChecks": [
            {
                "protocol": "COMMAND",
                "command": {"value": check},
                "gracePeriodSeconds": 60,
                "intervalSeconds": 1,
            }
        ],
    }
    if form != "process":
        kind = "DOCKER" if form == "docker" else "MESOS"
        app["container"] = {"type": kind, "docker": {"image": "tries:1"}}
    with Client(place.stack.reach) as client:
        apps = Marathon(client)
        apps.create(app, force=False)

        def healths() -> list[dict[str, Any]]:
            tasks = apps.app(f"/checked-{form}")["tasks"]
            return [each for task in tasks for each in task.get("healthCheckResults", [])]

        try:
            wait_until("it was checked", healths, 60)
            assert [each["alive"] for each in healths()] == [True], healths()
        finally:
            apps.change("DELETE", f"/v2/apps/checked-{form}", force=True)


@scoped
@each("process", "nested")
def test_task_that_ends_its_inner_process_has_no_commands_and_goes_on(place: Place, form: str) -> None:
    end = """
import os
for name in os.listdir("/proc"):
    try:
        ended = name.isdigit() and open(f"/proc/{name}/cmdline", "rb").read().startswith(PROGRAM)
        if ended:
            os.kill(int(name), 9)
            print("killed")
    except OSError:
        pass
"""
    program = {"process": b"mesos-gpu-inner", "nested": b"/dev/mesos_gpu/inner"}[form]
    with running(place, form) as job:
        ran = run_in(place, job, python_of(form), "-c", end.replace("PROGRAM", repr(program)))
        assert ran.returncode == 137, "its session was among them"
        ran = run_in(place, job, "/bin/sh", "-c", "echo never")
        assert (ran.stdout, ran.returncode != 0) == ("", True)
        assert "the process that starts commands in the task has ended" in ran.stderr
        with Client(place.stack.reach) as client:
            assert client.job(job)["state"] == "running"


@each("process")
def test_inner_process_shows_a_task_nothing(place: Place, form: str) -> None:
    """A task of the same user cannot read its memory, files or variables, attach to it, or take its socket."""
    look = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name in os.listdir("/proc"):
    try:
        if not (name.isdigit() and open(f"/proc/{name}/cmdline", "rb").read().startswith(b"mesos-gpu-inner")):
            continue
    except OSError:
        continue
    said = []
    for path in ("mem", "environ", "maps", "fd/0", "exe", "root", "cwd"):
        try:
            open(f"/proc/{name}/{path}", "rb").close()
            said.append(path)
        except OSError as error:
            pass
    if libc.ptrace(0x4206, int(name), 0, 0) == 0:
        said.append("ptrace")
    try:
        if libc.syscall(438, os.pidfd_open(int(name)), 0, 0) >= 0:
            said.append("pidfd_getfd")
    except ProcessLookupError:  # that of another cluster's task, which has ended
        continue
    print("open:", *said)
"""
    with running(place, form) as job:
        ran = run_in(place, job, PYTHON, "-c", look)
    lines = ran.stdout.splitlines()
    assert (set(lines), len(lines) >= 2, ran.stderr) == ({"open:"}, True, ""), (
        "that of the task, and the session"
    )


#: Results (errno) of system calls and /proc files that address another task of the user.
OTHERS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
word = sys.argv[1].encode()
for name in os.listdir("/proc"):
    try:
        if name.isdigit() and open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0")[:2] == [b"sleep", word]:
            pid = int(name)
    except OSError:
        pass
def tried(*arguments):
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return ctypes.get_errno() if libc.syscall(*given) < 0 else 0
limit, pages, status = (ctypes.c_ulong * 2)(77777, 77777), ctypes.c_ulong(0x400000), ctypes.c_int()
mask = ctypes.c_ulong(os.sched_getaffinity(0).__len__() and 1)
nodes = ctypes.c_ulong(1)
head, size = ctypes.c_ulong(), ctypes.c_ulong()
fd = os.pidfd_open(pid)
event = (ctypes.c_uint32 * 32)(1, 128)
iov = (ctypes.c_ulong * 2)(0x400000, 4096)
said = {
    "prlimit64": tried(302, pid, 0, limit, None), "setpriority": tried(141, 0, pid, 19),
    "setpriority of the user": tried(141, 2, 0, 19), "ioprio_set": tried(251, 1, pid, 3 << 13),
    "ioprio_set of the user": tried(251, 3, 0, 3 << 13),
    "ptrace": tried(101, 0x4206, pid, 0, 0), "process_vm_readv": tried(310, pid, iov, 1, iov, 1, 0),
    "process_vm_writev": tried(311, pid, iov, 1, iov, 1, 0), "kcmp": tried(312, os.getpid(), pid, 1, 0, 0),
    "pidfd_getfd": tried(438, fd, 0, 0), "process_madvise": tried(440, fd, iov, 1, 20, 0),
    "move_pages": tried(279, pid, 1, ctypes.byref(pages), None, ctypes.byref(status), 0),
    "migrate_pages": tried(256, pid, 64, ctypes.byref(nodes), ctypes.byref(nodes)),
    "perf_event_open": tried(298, event, pid, -1, -1, 0),
    "get_robust_list": tried(274, pid, ctypes.byref(head), ctypes.byref(size)),
    "sched_setaffinity": tried(203, pid, 8, ctypes.byref(mask)),
    "sched_setscheduler": tried(144, pid, 3, ctypes.byref(ctypes.c_int(0))),
}
try:
    open(f"/proc/{pid}/oom_score_adj", "w").write("500")
    said["oom_score_adj"] = 0
except OSError as error:
    said["oom_score_adj"] = error.errno
own = {"prlimit64": tried(302, 0, 0, limit, None), "setpriority": tried(141, 0, 0, 19)}
own["ioprio_set"] = tried(251, 1, 0, 0)
print(json.dumps([said, own]))
"""
#: Operations that are not prevented, as documented in docs/isolation.md.
REMAINS = {"sched_setaffinity", "sched_setscheduler", "oom_score_adj"}


@scoped
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of its calls are those of x86-64")
@each("process", "nested")
def test_task_changes_of_another_of_its_user_only_what_is_documented(place: Place, form: str) -> None:
    """From a command in it, which is kept as the task is. A container of the engine sees no process of others."""
    word = f"89{os.getpid()}"
    with running(place, "process", command=f"exec sleep {word}"), running(place, form) as job:
        ran = run_in(place, job, python_of(form), "-c", OTHERS, word)
    assert ran.stderr == ""
    said, own = json.loads(ran.stdout)
    assert own == {"prlimit64": 0, "setpriority": 0, "ioprio_set": 0}
    remains = set() if place.pooled else REMAINS  # the other has another uid
    assert {name for name, error in said.items() if not error} == remains, said
    assert {name: error for name, error in said.items() if error not in (0, 1, 13)} == {}, "not permitted"
