"""Health checks of the executor, beside real processes: in their namespaces and cgroups, as their user."""

import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isolator.confinement.apart_sys import SCOPES_SINCE, landlock_abi
from isolator.confinement.listeners import Listeners
from isolator.devices.cgroups import mounted_with
from isolator.executor import checks as checks_module
from isolator.executor.checks import Checker
from isolator.executor.life import Event, Kind
from isolator.host.processes import descendants
from isolator.runs import joining
from mesos_gpu.adapters import prober as prober_module
from mesos_gpu.model.jobs.healthcheck import Checked, HealthCheck, IpProtocol, Protocol
from mesos_gpu.policy.apps.healthcheck import TaskHealth
from mesos_gpu.wire.hosts.checked import encode_checked
from tests.answers import answering, closed_port, hangs, server_context, status
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import GPUS, TASK, Host, host

pytestmark = pytest.mark.kernel
OTHER = f"job-2.{os.getpid()}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole seconds are long for tests."""
    monkeypatch.setattr(prober_module, "timeout_s", lambda check: 0.4 * check.timeout_s)
    monkeypatch.setattr(prober_module, "pause_s", lambda check: check.interval_s or 0.05)
    monkeypatch.setattr(joining, "BEGUN_S", 0.3)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts tasks; ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*argv: str, **more: str) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], "MESOS_TASK_ID": TASK, **more}
        started.append(subprocess.Popen(argv, env=env, start_new_session=True))
        return started[-1]

    yield run
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def command(text: str, **more: int) -> HealthCheck:
    often = {"interval_s": 0, "timeout_s": 30, "grace_period_s": 0, "delay_s": 0} | more
    return HealthCheck(Protocol.COMMAND, command=text, **often)  # type: ignore[arg-type]


class Watch:
    """A checker that runs, and what it reported."""

    def __init__(
        self, checks: tuple[HealthCheck, ...], pid: int | None, shown: tuple[HealthCheck, ...] = ()
    ) -> None:
        self.reports: list[TaskHealth] = []
        self.shown: list[Event] = []
        self.checker = Checker(
            checks, TASK, pid, self.reports.append, Listeners(None), shown=shown, post=self.shown.append
        )
        self.checker.start()

    def first(self) -> TaskHealth:
        wait_until("a report", lambda: self.reports)
        return self.reports[0]


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    """Yield a function that starts checks. At the end no descriptor and no thread of theirs is left."""
    closed_port()  # its socket stays open
    files, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    watches: list[Watch] = []

    def begin(*checks: HealthCheck, pid: int | None = None, shown: tuple[HealthCheck, ...] = ()) -> Watch:
        watches.append(Watch(checks, pid, shown))
        return watches[-1]

    yield begin
    for one in watches:
        one.checker.stop()
        one.checker.stop()
    assert set(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads


def said(health: TaskHealth) -> str:
    return health.healths[0].last_failure_cause


Start = Callable[..., subprocess.Popen[bytes]]
Begin = Callable[..., Watch]


def test_the_exit_code_of_a_command_is_its_verdict(start: Start, watch: Begin, tmp_path: Path) -> None:
    task = start("sleep", "60")
    (tmp_path / "up").touch()
    seen = watch(command(f"test -e {tmp_path}/up || {{ echo it is down; exit 3; }}"), pid=task.pid)
    assert seen.first().healthy is True
    (tmp_path / "up").unlink()
    wait_until("it is to be killed", lambda: seen.reports[-1].kill)
    assert seen.reports[-1].kill == "COMMAND check failed 3 times: exit code 3: it is down"


def test_result_of_a_shown_check_is_told_when_it_changes_and_is_no_health(
    start: Start, watch: Begin, tmp_path: Path
) -> None:
    task = start("sleep", "60")
    shown = command(f"test -e {tmp_path}/up || {{ echo it is down; exit 3; }}", max_consecutive_failures=0)
    seen = watch(command("true"), pid=task.pid, shown=(shown,))
    assert seen.first().healthy is True

    def told(count: int) -> list[tuple[Kind, str, bytes]]:
        wait_until("the result", lambda: len(seen.shown) == count)
        return [(each.kind, each.message, each.payload) for each in seen.shown]

    down = Kind.CHECKED, "exit code 3: it is down", encode_checked(Checked(False, 3))
    assert told(1) == [down]
    (tmp_path / "up").touch()
    assert told(2) == [down, (Kind.CHECKED, "", encode_checked(Checked(True, 0)))]
    assert all(len(report.healths) == 1 and report.healthy for report in seen.reports)


def test_check_has_the_tasks_environment_and_directory(start: Start, watch: Begin, tmp_path: Path) -> None:
    task = start("sh", "-c", f"cd {tmp_path} && exec sleep 60", PORT0="31000", ODD="a=b\n\udc80")
    wait_until("it is there", lambda: os.readlink(f"/proc/{task.pid}/cwd") == str(tmp_path))
    text = 'test "$PORT0" = 31000 && test "$(printf "$ODD" | wc -c)" = 5 && test -z "$HOME" && pwd && exit 9'
    assert said(watch(command(text), pid=task.pid).first()) == f"exit code 9: {tmp_path}"


def test_check_that_hangs_is_ended_with_all_that_it_started(
    start: Start, watch: Begin, tmp_path: Path
) -> None:
    task = start("sleep", "60")
    text = f"sleep 61 & setsid sleep 62 & echo $! > {tmp_path}/other; trap '' TERM; echo $$ > {tmp_path}/pid; wait"
    seen = watch(command(text, interval_s=60, timeout_s=10), pid=task.pid)  # time for what it starts
    assert said(seen.first()) == "no answer in 4 s"
    for name in ("pid", "other"):
        pid = int((tmp_path / name).read_text())
        wait_until("it is dead", lambda pid=pid: not is_alive(pid))  # type: ignore[misc]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_stop_ends_a_check_under_way(start: Start, watch: Begin, tmp_path: Path) -> None:
    task = start("sleep", "60")
    seen = watch(
        command(f"echo $$ > {tmp_path}/p; mv {tmp_path}/p {tmp_path}/pid; sleep 63", timeout_s=60),
        pid=task.pid,
    )
    wait_until("it runs", (tmp_path / "pid").exists)
    seen.checker.stop()
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert not seen.reports


def test_check_ends_its_background_processes(start: Start, watch: Begin, tmp_path: Path) -> None:
    task = start("sleep", "60")
    seen = watch(command(f"sleep 64 & echo $! > {tmp_path}/pid", interval_s=60), pid=task.pid)
    assert seen.first().healthy is True, "although the other holds its output open"
    pid = int((tmp_path / "pid").read_text())
    wait_until("it is dead", lambda: not is_alive(pid))


def test_check_with_a_long_output_goes_on_and_its_end_is_kept(start: Start, watch: Begin) -> None:
    task = start("sleep", "60")
    seen = watch(command("head -c 3000000 /dev/zero | tr '\\0' x; echo the end; exit 1"), pid=task.pid)
    assert said(seen.first()).endswith("the end")
    assert len(said(seen.first())) < 400


def test_check_ended_by_a_signal_has_failed(start: Start, watch: Begin) -> None:
    task = start("sleep", "60")
    assert said(watch(command("kill -9 $$"), pid=task.pid).first()) == "signal 9"


@pytest.mark.parametrize("how", ["auto", "strict"])
def test_check_signals_processes_of_its_user_only(
    start: Start, watch: Begin, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A check that joins its task from outside signals its own children only (Linux 6.12). Its task gains no
    privileges."""
    monkeypatch.setenv("MESOS_GPU_TASK_FILTER", how)
    task = start("setpriv", "--no-new-privs", "sleep", "60")
    wait_until("it is bound", lambda: "NoNewPrivs:\t1" in Path(f"/proc/{task.pid}/status").read_text())
    health = watch(command(f"sleep 9 & kill $! && kill -0 {task.pid}"), pid=task.pid).first()
    assert health.healthy is not (landlock_abi() >= SCOPES_SINCE), said(health)


def test_a_process_of_another_task_is_never_joined(start: Start, watch: Begin) -> None:
    other = start("sleep", "60", MESOS_TASK_ID=OTHER)
    answer = said(watch(command("true"), pid=other.pid).first())
    assert answer == "the task cannot be joined: the process is not the task's, or has ended"
    assert joining.first_of(lambda: [1, other.pid, os.getpid()], OTHER) == other.pid
    assert joining.first_of(lambda: [1, other.pid], TASK) is None


def test_a_task_out_of_reach_fails(watch: Begin) -> None:
    answer = said(watch(command("true"), pid=None).first())
    assert answer == "the task cannot be joined: its process is not visible to the executor"


def test_a_check_that_does_not_die_is_not_made_again(
    start: Start, watch: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = start("sleep", "60")
    alive = threading.Event()
    alive.set()
    gone = checks_module.Command.gone
    monkeypatch.setattr(checks_module.Command, "gone", lambda self: not alive.is_set() and gone(self))
    seen = watch(command("exit 1"), pid=task.pid)
    wait_until("the second has failed", lambda: len(seen.reports) >= 2)
    assert said(seen.reports[1]).endswith("could not be killed")
    alive.clear()
    wait_until("it is made again", lambda: said(seen.reports[-1]) == "exit code 1")


# --- ports


def test_check_reaches_ports_on_the_loopback(watch: Begin, tmp_path: Path) -> None:
    def port(protocol: Protocol, number: int | None, **more: IpProtocol | int) -> HealthCheck:
        once = {"interval_s": 60, "timeout_s": 30, "grace_period_s": 0, "delay_s": 0} | more
        return HealthCheck(protocol, port=number, **once)  # type: ignore[arg-type]

    with (
        answering(status("200 OK")) as good,
        answering(status("500 Oops")) as bad,
        answering(status("302 Found"), server_context(tmp_path)) as safe,
        answering(hangs) as slow,
    ):
        cases = {
            port(Protocol.MESOS_HTTP, good.port): None,
            port(Protocol.MESOS_HTTP, bad.port): "HTTP status 500",
            port(Protocol.MESOS_HTTP, slow.port, timeout_s=1): "no answer in 0.4 s",
            port(Protocol.MESOS_HTTPS, safe.port): None,
            port(Protocol.MESOS_TCP, slow.port): None,
            port(Protocol.MESOS_TCP, closed_port()): "Connection refused",
            port(Protocol.MESOS_TCP, None): "the task has no port for this check",
            port(Protocol.MESOS_TCP, good.port, ip_protocol=IpProtocol.IPV6): "Connection refused",
        }
        seen = watch(*cases)
        seen.first()
        wait_until("all are made", lambda: all(one.alive is not None for one in seen.reports[-1].healths))
    for want, health in zip(cases.values(), seen.reports[-1].healths, strict=True):
        assert health.alive is (want is None)
        assert want is None or want == health.last_failure_cause


# --- where a task is

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes namespaces and changes users")


@needs_root
def test_check_has_the_tasks_user_and_no_more_rights(start: Start, watch: Begin) -> None:
    task = start(
        *("setpriv", "--reuid=65534", "--regid=65534", "--groups=65534,7", "--no-new-privs"),
        *("--bounding-set=-all,+chown", "sleep", "60"),
    )
    wait_until("it has changed", lambda: "\t65534" in Path(f"/proc/{task.pid}/status").read_text())
    text = "id -u; id -g; id -G; grep -E 'SigIgn|CapBnd|CapEff|NoNewPrivs' /proc/self/status; exit 1"
    words = said(watch(command(text), pid=task.pid).first()).split()
    ignored = int(words.pop(8), 16)
    assert words == [
        *("exit", "code", "1:", "65534", "65534", "65534", "7"),
        *("SigIgn:", "CapEff:", "0" * 16, "CapBnd:", "0" * 15 + "1", "NoNewPrivs:", "1"),
    ]
    # Python ignores these two; whoever started the tests may ignore others.
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@needs_root
def test_check_of_roots_task_has_no_more_rights_than_the_task(start: Start, watch: Begin) -> None:
    task = start("setpriv", "--no-new-privs", "--bounding-set=-all,+chown", "sleep", "60")
    wait_until(
        "it has one right", lambda: f"CapEff:\t{1:016x}" in Path(f"/proc/{task.pid}/status").read_text()
    )
    text = "mknod /dev/null-again c 1 3 && echo made; grep CapEff /proc/self/status; exit 1"
    assert said(watch(command(text), pid=task.pid).first()).endswith("CapEff:\t" + "0" * 15 + "1")


@needs_root
def test_check_sees_the_tasks_mounts_and_processes(start: Start, watch: Begin, tmp_path: Path) -> None:
    script = f"mount -t tmpfs none {tmp_path} && touch {tmp_path}/inside && exec sleep 60"
    outer = start(
        "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "sh", "-c", script
    )
    inner = wait_until("it runs", lambda: first_below(outer.pid, "sleep"))
    text = f"test -e {tmp_path}/inside && test $$ -lt 100 && test -d /proc/$$ && hostname >&2; exit 4"
    seen = watch(command(text), pid=inner)
    assert said(seen.first()).startswith("exit code 4: ")
    assert not (tmp_path / "inside").exists()
    hangs = watch(command("sleep 65", interval_s=60, timeout_s=1), pid=inner)
    assert said(hangs.first()) == "no answer in 0.4 s"
    wait_until("it is dead", lambda: first_below(os.getpid(), "sleep", "65") is None)


@needs_root
def test_check_has_the_tasks_root_directory(start: Start, watch: Begin, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in ("bin", "lib", "lib64", "usr", "proc"):
        (tmp_path / name).mkdir()
        subprocess.run(["mount", "--bind", f"/{name}", tmp_path / name], check=True)
    try:
        root = start("chroot", str(tmp_path), "/bin/sleep", "60")
        wait_until("it is there", lambda: os.readlink(f"/proc/{root.pid}/root") == str(tmp_path))
        refused = said(watch(command("true"), pid=root.pid).first())
        assert refused == "the task cannot be joined: the task is an image that runs as root"
        task = start("chroot", "--userspec=65534:65534", str(tmp_path), "/bin/sleep", "60")
        wait_until("it is there", lambda: runs(task.pid, "/bin/sleep"))
        seen = watch(command("test ! -e /etc && pwd; exit 5"), pid=task.pid)
        assert said(seen.first()) == "exit code 5: /"
    finally:
        for name in ("bin", "lib", "lib64", "usr", "proc"):
            subprocess.run(["umount", "-l", tmp_path / name], check=True)


@needs_root
def test_check_runs_in_the_tasks_cgroup(start: Start, watch: Begin) -> None:
    mount = next((mounted_with(name) for name in ("devices", "pids", "") if _is_mounted(name)), None)
    if mount is None or not os.access(mount, os.W_OK):
        pytest.skip("no cgroup can be made here")
    group = mount / f"mesos-gpu-check-{os.getpid()}"
    group.mkdir()
    try:
        task = start("sleep", "60")
        (group / "cgroup.procs").write_text(str(task.pid))
        seen = watch(command("cat /proc/self/cgroup; exit 1"), pid=task.pid)
        assert f"/{group.name}\n" in said(seen.first()) + "\n"
        seen.checker.stop()
        task.kill()
        wait_until("it is empty", lambda: not (group / "cgroup.procs").read_text())
    finally:
        group.rmdir()


def _is_mounted(hierarchy: str) -> bool:
    try:
        return bool(mounted_with(hierarchy))
    except FileNotFoundError:
        return False


def first_below(pid: int, *argv: str) -> int | None:
    return next((below for below in descendants(pid) if runs(below, *argv)), None)


def runs(pid: int, *argv: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[: len(argv)] == [word.encode() for word in argv]


# --- a task as the executor makes it


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[Host]:
    directory = open_directory / f"check-{time.monotonic_ns()}"
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        yield one


def test_check_of_an_isolated_task_sees_only_its_card(one: Host) -> None:
    os.mknod(one.sandbox / "other", stat.S_IFCHR | 0o666, os.makedev(195, 1))
    (one.sandbox / "other").chmod(0o666)
    one.launch("sleep 60", user="nobody", gpus=GPUS[:1])
    one.update("TASK_RUNNING")
    pid = joining.first_of(lambda: descendants(one.process.pid), one.task)
    text = "id -un; cd /dev; echo nvidia[0-9]; pwd; for f in nvidia0 $OLDPWD/other; do (: < $f) 2>&1; done; exit 1"
    seen = Watch((command(text, interval_s=60),), pid)
    try:
        words = said(seen.first())
    finally:
        seen.checker.stop()
    assert words.startswith("exit code 1: nobody\nnvidia0\n/dev\n"), words
    # Without a driver behind it a card that is allowed answers ENXIO, and one that is denied EPERM.
    assert "nvidia0: No such device or address" in words
    assert "other: Operation not permitted" in words
    one.kill(grace_s=0)
    one.end("TASK_KILLED")
