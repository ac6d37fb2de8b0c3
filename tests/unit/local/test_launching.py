"""The launch helper for containers on the host's own file system: what it takes upon itself, and what becomes of it."""

import contextlib
import json
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.libmesos import helpers, launching
from mesos_gpu.local.processes import poll

COMMAND = {"shell": True, "value": "true"}
ENVIRONMENT = {"variables": [{"name": "PATH", "type": "VALUE", "value": "/usr/bin:/bin"}]}
INFO: Mapping[str, Any] = {"command": COMMAND, "environment": ENVIRONMENT, "working_directory": "/tmp"}
FLAGS = {"PIPE_READ": "3", "PIPE_WRITE": "4", "RUNTIME_DIRECTORY": "/run/c"}


def flags(info: Mapping[str, Any], **more: str) -> dict[str, str]:
    return {**FLAGS, "LAUNCH_INFO": json.dumps(info), **more}


@pytest.mark.parametrize(
    "info",
    [
        INFO,
        {**INFO, "user": "nobody"},
        {**INFO, "clone_namespaces": [0x20000000]},
        {**INFO, "command": {"value": "true"}},
    ],
)
def test_launch_helper_takes_plain_requests(info: Mapping[str, Any]) -> None:
    assert launching.plain(flags(info)) == info
    assert launching.plain(flags(info, UNSHARE_NAMESPACE_MNT="false", HELP="false")) == info
    as_agents_say_it = {**info, "task_environment": {}}
    assert launching.plain(flags(as_agents_say_it)) == as_agents_say_it


@pytest.mark.parametrize(
    "more",
    [
        {"rootfs": "/r"}, {"mounts": []}, {"masked_paths": ["/proc/kcore"]}, {"rlimits": {}},
        {"no_new_privileges": True},
        {"effective_capabilities": {}}, {"bounding_capabilities": {}}, {"seccomp_profile": {}}, {"file_operations": []},
        {"pre_exec_commands": []}, {"tty_slave_path": "/dev/pts/1"}, {"supplementary_groups": [1]},
        {"task_environment": {"variables": [{"name": "A"}]}}, {"enter_namespaces": [1]},
        {"clone_namespaces": [0x20000]}, {"of_later_versions": 1},
        {"command": {"shell": False, "value": "/bin/true", "arguments": []}}, {"command": {"shell": True}},
        {"environment": {"variables": []}},
    ],
    ids=lambda more: next(iter(more)) + "-" + "".join(filter(str.isalnum, json.dumps(more)))[-12:],
)  # fmt: skip
def test_mesos_launches_what_asks_for_more(more: Mapping[str, Any]) -> None:
    assert launching.plain(flags({**INFO, **more})) is None


@pytest.mark.parametrize(
    "given",
    [
        {"NAMESPACE_MNT_TARGET": "1"}, {"UNSHARE_NAMESPACE_MNT": "true"}, {"LAUNCH_INFO": "file:///etc/passwd"},
        {"LAUNCH_INFO": "{"}, {"LAUNCH_INFO": "[]"}, {"LAUNCH_INFO": json.dumps(INFO) + "x"}, {"LAUNCH_INFO": ""},
        {"PIPE_READ": "x"}, {"PIPE_WRITE": "-1"}, {"RUNTIME_DIRECTORY": "run"}, {"HELP": "true"},
    ],
    ids=lambda given: "-".join(given) + "-" + "".join(filter(str.isalnum, str(given)))[-8:],
)  # fmt: skip
def test_mesos_judges_flags_that_are_not_as_they_ever_were(given: Mapping[str, str]) -> None:
    assert launching.plain(flags(INFO, **given)) is None
    missing = flags(INFO)
    del missing["RUNTIME_DIRECTORY"]
    assert launching.plain(missing) is None


@pytest.mark.parametrize("value", [INFO, {"a": [1, 2.5, None, True, 'ä\n\u20ac\U0001f600\\"']}, {}])
def test_launch_helper_reads_json_as_json_does(value: object) -> None:
    assert launching.decoded(json.dumps(value)) == value
    assert launching.decoded(json.dumps(value, ensure_ascii=False) + " \n") == value


class Container:
    """A helper that waits for its agent, which is this test."""

    def __init__(self, launcher: Path, top: Path, info: Mapping[str, Any], **more: str) -> None:
        self.runtime, self.sandbox = top / "run", top / "sandbox"
        self.runtime.mkdir()
        reads, self._writes = os.pipe()
        spare = os.dup(self._writes)
        given = flags({**info, "working_directory": str(self.sandbox)}, **more)
        given |= {"PIPE_READ": str(reads), "PIPE_WRITE": str(spare), "RUNTIME_DIRECTORY": str(self.runtime)}
        self.output = top / "output"
        with self.output.open("wb") as output:
            self.popen = subprocess.Popen(
                [str(launcher / "mesos-containerizer"), "launch"],
                env={launching.PREFIX + name: value for name, value in given.items()},
                pass_fds=(reads, spare), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        os.close(reads)
        os.close(spare)

    def go(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the helper may have ended without reading
            os.write(self._writes, b"x")
        self.leave()

    def leave(self) -> None:
        os.close(self._writes)
        self._writes = -1

    def end(self) -> tuple[int, str, str]:
        """Exit code of the helper, what it wrote down, what was written to its output."""
        code = self.popen.wait(60)
        status = self.runtime / launching.STATUS
        return code, status.read_text() if status.exists() else "", self.output.read_text()

    def close(self) -> None:
        if self._writes >= 0:
            self.leave()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("launching") / "libexec"
    helpers.write(directory, directory / "no library")
    return directory


@pytest.fixture
def contained(launcher: Path, tmp_path: Path) -> Iterator[Any]:
    made: list[Container] = []

    def start(command: str, variables: Mapping[str, str] | None = None, **more: Any) -> Container:
        given = {"PATH": "/usr/bin:/bin", **(variables or {})}
        listed = [{"name": name, "type": "VALUE", "value": value} for name, value in given.items()]
        info = {"command": {"shell": True, "value": command}, "environment": {"variables": listed}, **more}
        made.append(Container(launcher, tmp_path, info))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_the_command_runs_with_its_variables_in_its_directory(contained: Any) -> None:
    one = contained(
        'pwd; env | sort; ls -l /proc/self/fd | grep -c " -> "; trap', {"X": "a 'b' \u20ac", "PWD": "/"}
    )
    one.go()
    code, status, output = one.end()
    lines = output.splitlines()
    assert (code, status, lines[0]) == (0, "0", str(one.sandbox))
    assert "X=a 'b' \u20ac" in lines
    assert not [line for line in lines if line.startswith("MESOS_CONTAINERIZER_")]
    assert lines[-1] == "4", "three streams, and the directory that ls reads"


@pytest.mark.parametrize(
    ("command", "status"), [("exit 3", 3 << 8), ("kill -9 $$", 9), ("no-such-command", 127 << 8)]
)
def test_launch_helper_writes_down_how_the_command_ended(contained: Any, command: str, status: int) -> None:
    one = contained(command)
    one.go()
    assert one.end()[:2] == (0, str(status))


def test_launch_helper_runs_nothing_without_the_agents_word(contained: Any) -> None:
    one = contained("echo it runs")
    one.leave()
    code, status, output = one.end()
    assert (code, status, "it runs" in output) == (1, str(1 << 8), False)
    assert "Failed to synchronize with agent" in output


def test_a_signal_before_the_command_ends_the_start(contained: Any) -> None:
    one = contained("echo it runs")
    poll("it listens", lambda: (one.runtime / launching.STATUS).exists() and listens(one.popen.pid))
    one.popen.send_signal(signal.SIGTERM)
    assert one.end() == (1, str(int(signal.SIGTERM)), "")


def listens(pid: int) -> bool:
    """Whether a process has a handler for the last of the signals."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> 63)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE])
def test_signals_go_on_to_the_command_which_has_no_handlers_left(contained: Any, number: int) -> None:
    one = contained("echo begun; exec sleep 600")
    one.go()
    poll("it runs", lambda: "begun" in one.output.read_text() and sleeping(one.popen.pid))
    one.popen.send_signal(number)
    assert one.end()[:2] == (0, str(int(number)))


def sleeping(parent: int) -> bool:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return any(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in children)


def test_children_that_the_command_left_are_collected(contained: Any) -> None:
    one = contained("setsid sh -c 'sleep 0.1' & exec sleep 0.5")
    one.go()
    assert one.end()[:2] == (0, "0")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts as another user")
def test_the_user_has_its_groups_and_no_others(contained: Any) -> None:
    one = contained("id -u; id -g; id -G; touch made", user="nobody")
    one.go()
    code, status, output = one.end()
    nobody = pwd.getpwnam("nobody")
    groups = os.getgrouplist("nobody", nobody.pw_gid)
    wanted = f"{nobody.pw_uid}\n{nobody.pw_gid}\n{' '.join(map(str, groups))}\n"
    assert (code, output[: len(wanted)]) == (0, wanted), output
    assert status != "0", "the directory is root's"


def test_a_user_that_is_not_there_ends_the_start(contained: Any) -> None:
    one = contained("echo it runs", user="no-such-user")
    one.go()
    code, status, output = one.end()
    assert (code, status) == (1, str(1 << 8))
    assert "Failed to get the uid of user 'no-such-user': not found" in output


def test_launch_helper_leaves_unknown_requests_to_mesos(contained: Any) -> None:
    one = contained("echo it runs", rlimits={"rlimits": []})
    one.go()
    code, _, output = one.end()
    assert (code, "no library" in output, "it runs" in output) == (1, True, False)


def test_the_executor_goes_on_in_the_same_interpreter(contained: Any, launcher: Path) -> None:
    given = {"MESOS_DIRECTORY": "/x", "MESOS_AGENT_ENDPOINT": "127.0.0.1:1", "MESOS_FRAMEWORK_ID": "f"}
    one = contained(helpers.executor_command(launcher), given)
    one.go()
    code, status, output = one.end()
    assert (code, status) == (0, str(1 << 8))
    assert output.splitlines()[-1] == "KeyError: 'MESOS_EXECUTOR_ID'"
    assert "in _execute" in output


def test_an_executor_looks_as_if_it_had_been_executed(contained: Any, launcher: Path, tmp_path: Path) -> None:
    given = {
        "MESOS_DIRECTORY": str(tmp_path / "sandbox"), "MESOS_AGENT_ENDPOINT": "127.0.0.1:1", "MESOS_FRAMEWORK_ID": "f",
        "MESOS_EXECUTOR_ID": "e", "MESOS_GPU_NODE_DIR": str(tmp_path / "node"), "MESOS_RECOVERY_TIMEOUT": "1mins",
    }  # fmt: skip
    (tmp_path / "node").mkdir(mode=0o700)
    one = contained(helpers.executor_command(launcher), given)
    one.go()
    children = Path(f"/proc/{one.popen.pid}/task/{one.popen.pid}/children")
    [pid] = poll("there is one", lambda: children.read_text().split())
    process = Path("/proc", pid)
    name = Path(helpers.python()).name[:15]
    expected = {"PATH": "/usr/bin:/bin", **given}

    def variables() -> dict[str, str]:
        seen = (process / "environ").read_bytes().rstrip(b"\0").split(b"\0")
        return dict(pair.decode().partition("=")[::2] for pair in seen)

    # They are written one after the other.
    poll("it has its command line", lambda: launching.EXECUTOR in (process / "cmdline").read_text())
    poll("it has its variables", lambda: variables() == expected)
    poll("it has its name", lambda: (process / "comm").read_text().strip() == name)
    words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert words == [os.fsencode(each) for each in (helpers.python(), "-IS", launcher / launching.EXECUTOR)]
    one.popen.send_signal(signal.SIGTERM)
    assert one.end()[0] == 0


def test_a_shell_runs_any_other_command_and_the_executor_of_another_user(
    contained: Any, launcher: Path
) -> None:
    one = contained(helpers.executor_command(launcher) + " ")
    one.go()
    output = one.end()[2]
    assert "in _execute" not in output
    assert "KeyError: 'MESOS_AGENT_ENDPOINT'" in output
