"""Each task of a host has a uid of its own from the range that an operator gives, and gives it back."""

import os
import pwd
import signal
import stat
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Ledger, NoneFree, Owner, Trace
from isolator.host import user_pool
from isolator.node.reaper import reap
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.libmesos import helpers
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import Host, host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel
OF_AN_ACCOUNT = pwd.getpwnam("nobody").pw_uid
SHOW = "id -u; id -g; id -G; echo $HOME; touch mine; stat -c %u mine"


@pytest.fixture
def uids(own_uids: range) -> range:
    """Two uids of this process of tests alone."""
    return own_uids[:2]


@pytest.fixture
def pool(uids: range) -> str:
    """The pool of the two."""
    return f"{uids[0]}-{uids[1]}"


@pytest.fixture
def directory(open_directory: Path) -> Path:
    needs("cgroup1")
    path = open_directory / str(time.monotonic_ns())
    path.mkdir()
    path.chmod(0o755)
    return path


def start(stack: ExitStack, directory: Path, number: int, pool: str) -> Host:
    """Start a task of a host."""
    agent = stack.enter_context(scripted_agent())
    task = f"pooled-{number}.{os.getpid()}"
    return stack.enter_context(host(directory, agent, task=task, MESOS_GPU_USER_POOL=pool))


def test_living_tasks_have_different_uids_and_give_them_back(directory: Path, uids: range, pool: str) -> None:
    with ExitStack() as stack:
        one, two, three = (start(stack, directory, number, pool) for number in range(3))
        for task in (one, two):
            task.launch(f"{SHOW}; exec sleep 600", user="nobody", user_is_default=True)
        wait_until("they run", lambda: all(len(task.stdout().split()) == 5 for task in (one, two)), 30)
        outputs = [task.stdout().split() for task in (one, two)]
        assert {int(said[0]) for said in outputs} == set(uids)
        assert [said[1:] for said in outputs] == [
            [said[0], said[0], str(task.sandbox), said[0]]
            for said, task in zip(outputs, (one, two), strict=True)
        ]
        three.launch("true", user="nobody", user_is_default=True)
        message, outcome = three.update("TASK_FAILED")
        assert "all uids of MESOS_GPU_USER_POOL" in message, outcome
        one.kill()
        one.update("TASK_KILLED")
        assert one.process.wait(60) == 0
        assert stat.S_IMODE(one.sandbox.stat().st_mode) == 0o700, "the next of that uid does not get in"
        assert one.sandbox.stat().st_uid == 0
        four = start(stack, directory, 4, pool)
        four.launch("id -u", user="nobody", user_is_default=True)
        four.update("TASK_FINISHED")
        assert four.stdout() == outputs[0][0] + "\n"
        two.kill()
        two.end("TASK_KILLED")


def test_a_user_that_a_job_names_is_its_user(directory: Path, agent: ScriptedAgent, pool: str) -> None:
    with host(directory, agent, MESOS_GPU_USER_POOL=pool, MESOS_GPU_USERS="nobody") as one:
        one.launch("id -un; env | grep -c POOL", user="nobody")
        one.end("TASK_FAILED")
        assert one.stdout().split() == ["nobody", "0"]


def test_fetched_files_belong_to_the_uid(
    directory: Path, agent: ScriptedAgent, uids: range, pool: str
) -> None:
    helpers.write(directory / "libexec", directory)
    (directory / "weights").write_text("7\n")
    program = directory / "libexec" / "mesos-fetcher"
    # By the system's interpreter: a uid without an account cannot read that of root's.
    program.write_text(program.read_text().replace(helpers.python(), "/usr/bin/python3"))
    with host(directory, agent, MESOS_GPU_USER_POOL=pool, MESOS_GPU_FETCHER=str(program)) as one:
        one.launch(
            "id -u; stat -c %u weights; cat weights", user="nobody", user_is_default=True,
            fetch=({"value": f"{directory}/weights"},),
        )  # fmt: skip
        one.end("TASK_FINISHED")
        own, owner, text = one.stdout().split()
        assert own == owner
        assert int(own) in uids
        assert text == "7"


def test_a_killed_executors_uid_comes_back_with_the_monitor(
    directory: Path, agent: ScriptedAgent, pool: str
) -> None:
    with host(directory, agent, MESOS_GPU_USER_POOL=pool) as one:
        one.launch("echo up; exec sleep 600", user="nobody", user_is_default=True)
        wait_until("it runs", lambda: "up" in one.stdout(), 30)
        one.process.send_signal(signal.SIGKILL)
        one.process.wait()
        (held,) = one.ledger.holdings()
        assert next(trace.kind for trace in held.traces) == "uid"
        reap(one.ledger)
        assert one.ledger.holdings() == ()
        assert stat.S_IMODE(one.sandbox.stat().st_mode) == 0o700


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_ledger_gives_no_uid_twice(ledger: Ledger) -> None:
    def claim(task: str) -> object:
        owner = Owner.of(os.getpid() if task == "a" else 1)
        return ledger.claim(
            task, (), owner, uids=(7, 8), uid_trace=lambda uid: Trace("uid", f"{uid} /sandbox/{task}")
        )

    assert claim("a") == Claimed(7)
    assert claim("b") == Claimed(8)
    third = ledger.claim(
        "c", (), Owner(1, 2, "x", 3), uids=(7, 8), uid_trace=lambda uid: Trace("uid", f"{uid} /c")
    )
    assert third == NoneFree()
    assert {trace.what for held in ledger.holdings() for trace in held.traces} == {
        "7 /sandbox/a",
        "8 /sandbox/b",
    }


@pytest.mark.parametrize("said", ["60000", "a-b", "60001-60000", "0-100", "999-2000", "60000-4294967295"])
def test_user_pool_that_is_no_range_is_refused(said: str) -> None:
    with pytest.raises(BadConfiguration, match=f"MESOS_GPU_USER_POOL: '{said}'"):
        user_pool.pool_of({"MESOS_GPU_USER_POOL": said})


def test_uids_of_others_are_left_out(uids: range, pool: str) -> None:
    assert not user_pool.is_free(OF_AN_ACCOUNT)
    assert user_pool.is_free(uids[0])
    both = range(
        OF_AN_ACCOUNT, uids[0] + 1, uids[0] - OF_AN_ACCOUNT
    )  # other tests have processes of those between
    assert list(both) == [OF_AN_ACCOUNT, uids[0]]
    assert set(user_pool.candidates(both)) == {uids[0]}
    assert (
        "belong to others"
        in user_pool.look({"MESOS_GPU_USER_POOL": f"{OF_AN_ACCOUNT - 1}-{OF_AN_ACCOUNT}"}).text
    )
    assert user_pool.look({}).remedy
    assert not user_pool.look({"MESOS_GPU_USER_POOL": pool}).remedy


def test_uids_of_living_processes_are_left_out(uids: range) -> None:
    needs("cgroup1")
    with subprocess.Popen(["sleep", "600"], user=uids[0]) as process:
        assert set(user_pool.candidates(uids)) == {uids[1]}
        process.kill()
    assert set(user_pool.candidates(uids)) == set(uids)


def test_a_uid_of_which_something_lives_is_not_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isolator.host.user_pool._GONE_S", 0.1)
    needs("cgroup1")
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    try:
        assert pid in user_pool.give_back(f"{os.getuid()} {tmp_path}")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
