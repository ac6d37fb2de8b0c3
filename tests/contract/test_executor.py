"""The executor and the monitor as processes, against a scripted agent: real sockets, real signals, real users."""

import base64
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.agent.agent_api import RETRY_S
from isolator.devices.facts import write_inventory
from isolator.gpus.ledger import Claimed, Owner
from mesos_gpu import __version__
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.hosts.program import decode_program
from mesos_gpu.wire.mesos.assignment import decode_outcome
from mesos_gpu.wire.mesos.v1 import start_message
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import GPUS, INVENTORY, TASK, Host, changed_executor, host

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes users")


def ready(one: Host, text: str = "ready") -> None:
    wait_until("the command is at work", lambda: text in one.stdout())


def sleeps(mark: str) -> list[int]:
    """Processes `sleep MARK` that are not zombies."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]:
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def unique() -> str:
    """A duration that no other `sleep` of this machine has."""
    return f"600.{time.monotonic_ns() % 10**9}"


# --- how a command ends


@pytest.mark.parametrize(
    ("command", "state", "message", "outcome"),
    [
        ("true", "TASK_FINISHED", "Command exited with status 0", Outcome(exit_status=0)),
        ("exit 3", "TASK_FAILED", "Command exited with status 3", Outcome(exit_status=3)),
        ("kill -9 $$", "TASK_FAILED", "Command terminated with signal 9 (Killed)", Outcome(signal=9)),
    ],
)
def test_command_end_is_reported(one: Host, command: str, state: str, message: str, outcome: Outcome) -> None:
    one.launch(command, gpus=GPUS)
    assert one.end(state) == (message, outcome)
    assert one.states() == ["TASK_RUNNING", state]


def test_first_update_of_a_task_that_starts_at_once_names_the_executor(one: Host) -> None:
    one.launch("true")
    introduced = decode_program(one.update("TASK_RUNNING")[1])
    assert introduced is not None
    assert introduced.version == __version__


def test_argv_needs_no_shell(one: Host) -> None:
    one.launch(command=None, argv=("echo", "$HOME", "a  b"))
    one.end("TASK_FINISHED")
    assert one.stdout() == "$HOME a  b\n"


@pytest.mark.parametrize(
    ("argv", "says", "status"),
    [
        (
            ("/no/such/program",),
            "cannot start '/no/such/program': No such file or directory on this host; an --image has its own programs",
            127,
        ),
        (
            ("/etc/passwd",),
            f"cannot start '/etc/passwd': Permission denied: uid {os.geteuid()} may not execute /etc/passwd "
            "(mode 0644, owner uid 0)",
            126,
        ),
        ((), "the task has neither a command nor an argv", None),
    ],
)
def test_command_that_cannot_start_is_the_jobs_fault(
    one: Host, argv: tuple[str, ...], says: str, status: int | None
) -> None:
    one.launch(command=None, argv=argv, gpus=GPUS)
    assert one.end("TASK_FAILED") == (says, Outcome(exit_status=status))


@pytest.mark.parametrize("data", [b"", b"{}", b"not JSON", b'{"version":1,"kind":"Assignment","job":1}'])
def test_a_task_that_is_not_ours_fails_at_once(one: Host, data: bytes) -> None:
    one.send_task(data)
    message, _ = one.end("TASK_FAILED")
    assert message.startswith("not a task for this executor")


def test_an_assignment_of_a_wire_that_is_not_known_uses_no_attempt_up(one: Host) -> None:
    one.send_task(b'{"version":1,"kind":"Assignment","job_id":"j","attempt":1,"command":"true","wire":99}')
    message, outcome = one.end("TASK_FAILED")
    assert "an assignment has wire 99, but this executor reads" in message
    assert outcome.infrastructure


def test_assignment_of_wrong_types_is_reported_as_a_failure(one: Host) -> None:
    """The fields have names, but not types: what breaks on the way is a failure that is reported."""
    one.send_task(b'{"version":1,"kind":"Assignment","job_id":"j","attempt":1,"command":7,"env":5}')
    message, outcome = one.end("TASK_FAILED")
    assert "executor failed" in message
    assert outcome.infrastructure


def test_processes_that_a_command_leaves_are_ended(one: Host) -> None:
    mark = unique()
    one.launch(f"setsid sleep {mark} & (setsid sleep {mark} &) ; nohup sleep {mark} & sleep 0.1", gpus=GPUS)
    one.end("TASK_FINISHED")
    assert sleeps(mark) == []


# --- what it sees


def environment(one: Host, **assignment: object) -> dict[str, str]:
    one.launch("env -0", gpus=GPUS, **assignment)
    one.end("TASK_FINISHED")
    return dict(entry.split("=", 1) for entry in one.stdout().split("\0") if entry)


def test_a_task_has_its_own_environment_and_nothing_forged(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    secrets = {"MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t", "LIBPROCESS_PORT": "0"}
    asked = {
        "A": "1", "MESOS_TASK_ID": "forged", "MESOS_EXECUTOR_ID": "forged", "CUDA_VISIBLE_DEVICES": "0,1,2",
        "NVIDIA_VISIBLE_DEVICES": "all", "USER": "me",
    }  # fmt: skip
    with host(open_directory, agent, **secrets) as one:
        env = environment(one, env=asked)
    assert env["A"] == "1"
    assert env["USER"] == "me"
    assert env["NVIDIA_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (env["MESOS_TASK_ID"], env["MESOS_EXECUTOR_ID"]) == (TASK, TASK)
    assert (env["MESOS_GPU_JOB_ID"], env["MESOS_GPU_ATTEMPT"]) == ("job-1", "2")
    assert env["PWD"] == env["MESOS_SANDBOX"] == str(one.sandbox)
    hidden = {*secrets, "MESOS_GPU_NODE_DIR", "MESOS_GPU_ALLOW_ROOT"}
    assert hidden.isdisjoint(env)


def test_home_path_and_python_are_the_same_on_every_host(open_directory: Path, agent: ScriptedAgent) -> None:
    theirs = {"HOME": "/root", "PYTHONUNBUFFERED": "", "PATH": f"/opt/theirs:{os.environ['PATH']}"}
    standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with host(open_directory, agent, **theirs) as one:
        env = environment(one)
        assert (env["HOME"], env["PATH"], env["PYTHONUNBUFFERED"]) == (str(one.sandbox), standard, "1")


def test_but_for_what_the_job_says(one: Host) -> None:
    asked = {"HOME": "/tmp", "PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": ""}
    env = environment(one, env=asked)
    assert {name: env[name] for name in asked} == asked


def test_a_program_that_is_not_in_the_sandbox(one: Host) -> None:
    (one.sandbox / "data").touch()
    one.launch(command=None, argv=("./train.sh",))
    message, outcome = one.end("TASK_FAILED")
    assert message == (
        "cannot start './train.sh': No such file or directory; searched in the sandbox "
        f"{one.sandbox}, which contains data, executor.log, stderr, stdout. Send files there with "
        "--upload [DIR] or --fetch URI, and mount paths of the host with --volume"
    )
    assert outcome == Outcome(exit_status=127)


def test_task_without_gpus_sees_none(one: Host) -> None:
    one.launch('echo "$NVIDIA_VISIBLE_DEVICES|${CUDA_VISIBLE_DEVICES-unset}|$CUDA_DEVICE_ORDER"')
    one.end("TASK_FINISHED")
    assert one.stdout() == "void||PCI_BUS_ID\n"


def test_the_streams_are_the_commands_alone(one: Host) -> None:
    one.launch("echo out; echo err >&2")
    one.end("TASK_FINISHED")
    assert one.stdout() == "out\n"
    assert (one.sandbox / "stderr").read_text() == "err\n"
    assert "TASK_FINISHED" in (one.sandbox / "executor.log").read_text()


# --- users


@as_root
def test_a_command_runs_as_another_user_in_a_session_of_its_own(one: Host) -> None:
    one.launch(
        "id -un; id -Gn; echo $HOME $USER $LOGNAME; echo mine > file; stat -c %U file; cut -d' ' -f6 /proc/$$/stat",
        user="nobody",
    )
    one.end("TASK_FINISHED")
    name, groups, named, owner, session = one.stdout().splitlines()
    assert (name, groups, named) == ("nobody", "nogroup", f"{one.sandbox} nobody nobody")
    assert int(session) not in (os.getsid(0), one.process.pid)
    assert owner == "nobody"
    assert (one.sandbox / "file").owner() == "root", "sealed at the end"


def test_an_unknown_user_is_the_jobs_fault(one: Host) -> None:
    one.launch("true", user="no-such-user", gpus=GPUS)
    message, outcome = one.end("TASK_FAILED")
    assert outcome == Outcome()
    assert message.startswith(
        "the user 'no-such-user' does not exist on this host; name a user that they have"
    )
    for remedy in ("--user", "unix_users", "--user-pool"):
        assert remedy in message


@as_root
@pytest.mark.parametrize("user", ["root", None])
def test_root_is_refused_unless_the_host_allows_it(
    open_directory: Path, agent: ScriptedAgent, user: str | None
) -> None:
    with host(open_directory, agent, MESOS_GPU_ALLOW_ROOT="nowhere") as one:
        one.launch("true", user=user, env={"MESOS_GPU_ALLOW_ROOT": "host"})
        message, outcome = one.end("TASK_FAILED")
    assert "MESOS_GPU_ALLOW_ROOT is nowhere, and must be host" in message
    assert not outcome.infrastructure


def test_a_sandbox_that_is_gone_is_the_hosts_fault(one: Host) -> None:
    one.agent.wait_for(lambda: bool(one.agent.subscribes))
    shutil.rmtree(one.sandbox)
    one.launch("true", gpus=GPUS)
    message, outcome = one.end("TASK_FAILED")
    assert message == f"the sandbox {one.sandbox} cannot be entered: No such file or directory"
    assert outcome.infrastructure


# --- the end, from outside


def test_kill_is_sigterm_then_the_grace_then_sigkill_of_the_whole_tree(one: Host) -> None:
    mark = unique()
    deaf = f"trap 'echo terminated' TERM; setsid sh -c 'trap \"\" TERM; sleep {mark}' & echo ready"
    one.launch(f"{deaf}; while :; do sleep 0.02; done", gpus=GPUS)
    ready(one)
    wait_until("its session runs", lambda: sleeps(mark))
    began = time.monotonic()
    one.kill(grace_s=0.4)
    message, outcome = one.end("TASK_KILLED")
    assert 0.4 <= time.monotonic() - began < 30
    assert "terminated" in one.stdout()
    assert (message, outcome) == ("killed on request", Outcome(signal=9))
    assert one.states() == ["TASK_RUNNING", "TASK_KILLING", "TASK_KILLED"]
    assert sleeps(mark) == []


def test_a_command_that_heeds_sigterm_is_not_waited_for(one: Host) -> None:
    one.launch("echo ready; exec sleep 600", gpus=GPUS, kill_grace_s=60.0)
    ready(one)
    began = time.monotonic()
    one.kill()
    one.kill()
    assert one.end("TASK_KILLED")[1] == Outcome(signal=15)
    assert time.monotonic() - began < 30


def test_a_late_child_keeps_its_grace_and_the_command_its_exit_status(one: Host) -> None:
    """The command goes at once; its child, in another session, saves its work first."""
    late = (
        "setsid sh -c 'trap \"sleep 0.3; echo saved; exit 0\" TERM; echo ready; while :; do sleep 0.02; done'"
    )
    one.launch(f"trap 'exit 7' TERM; {late} & while :; do sleep 0.02; done", kill_grace_s=20.0)
    ready(one)
    one.kill()
    assert one.end("TASK_KILLED")[1] == Outcome(exit_status=7)
    assert "saved" in one.stdout()


def test_a_kill_at_the_worst_moment_is_a_kill(one: Host) -> None:
    one.kill("unknown")
    one.kill()  # not launched yet: unknown, too
    one.launch("sleep 600", gpus=GPUS)
    one.kill(grace_s=0.2)
    one.end("TASK_KILLED")


def test_a_timeout_is_a_failure(one: Host) -> None:
    mark = unique()
    one.launch(f"sleep {mark}", gpus=GPUS, timeout_s=0.3, kill_grace_s=0.2)
    assert one.end("TASK_FAILED") == ("Ran longer than its timeout_s of 0.3", Outcome(signal=15))
    assert sleeps(mark) == []


@pytest.mark.parametrize("how", ["SHUTDOWN", "SIGTERM"])
def test_shutdown_ends_the_task_and_says_so(one: Host, how: str) -> None:
    one.launch("echo ready; sleep 600", gpus=GPUS)
    ready(one)
    if how == "SHUTDOWN":
        one.agent.send({"type": "SHUTDOWN"})
    else:
        one.process.send_signal(signal.SIGTERM)
    assert one.end("TASK_KILLED")[0] == "the agent shut the executor down"


def test_shutdown_before_a_launch_just_ends_it(one: Host) -> None:
    one.agent.send({"type": "SHUTDOWN"})
    assert one.process.wait(60) == 0


# --- a gang


def go(one: Host) -> None:
    data = base64.b64encode(start_message()).decode()
    one.agent.send({"type": "MESSAGE", "message": {"data": data}})


def test_a_member_says_that_it_has_its_place_and_waits_for_the_word(one: Host) -> None:
    one.launch("cat $HOSTFILE", gpus=GPUS, hosts=("n1", "n2"))
    one.update("TASK_STARTING")
    one.agent.send({"type": "MESSAGE", "message": {"data": base64.b64encode(b"another word").decode()}})
    assert [(held.gpus, held.task) for held in one.ledger.holdings()] == [(GPUS, TASK)]
    assert (one.states(), one.stdout()) == (["TASK_STARTING"], "")
    go(one)
    one.end("TASK_FINISHED")
    assert one.states() == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
    assert one.stdout() == "n1 slots=2\nn2 slots=2\n"


def test_gang_word_that_comes_before_the_member_has_its_place_counts(one: Host) -> None:
    one.agent.wait_for(lambda: bool(one.agent.subscribes))
    go(one)
    one.launch("true", hosts=("n1", "n2"))
    go(one)
    one.end("TASK_FINISHED")
    assert one.states() == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]


def test_the_first_update_says_what_the_executor_is(one: Host) -> None:
    one.agent.wait_for(lambda: bool(one.agent.subscribes))
    go(one)
    one.launch("true", hosts=("n1", "n2"))
    one.end("TASK_FINISHED")
    introduced = decode_program(one.update("TASK_STARTING")[1])
    assert introduced is not None
    assert introduced.version == __version__
    assert one.update("TASK_RUNNING")[1] == b""


@pytest.mark.parametrize("how", ["KILL", "SHUTDOWN"])
def test_a_member_that_waits_is_ended_without_a_start(one: Host, how: str) -> None:
    one.launch("echo never", gpus=GPUS, hosts=("n1", "n2"))
    one.update("TASK_STARTING")
    one.kill() if how == "KILL" else one.agent.send({"type": "SHUTDOWN"})
    message, outcome = one.end("TASK_KILLED")
    assert message == ("killed on request" if how == "KILL" else "the agent shut the executor down")
    assert outcome == Outcome()
    assert (one.states(), one.stdout()) == (["TASK_STARTING", "TASK_KILLED"], "")


# --- faults of the executor's own


def test_agent_event_that_makes_no_sense_ends_the_task(one: Host) -> None:
    mark = unique()
    one.launch(f"setsid sleep {mark} & echo ready; sleep {mark}", gpus=GPUS)
    ready(one)
    assert [each.gpus for each in one.held()] == [GPUS]
    one.agent.send({"no": "type"})
    assert one.process.wait(60) == 1
    assert sleeps(mark) == []
    assert one.held() == []
    assert "the connection to the agent failed" in (one.sandbox / "executor.log").read_text()


def test_executor_without_threads_reports_the_end(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on processes can do so; what must be undone is, by the one thread that there is."""
    code = (
        'def full(self, *steps): raise RuntimeError("can\'t start new thread")\n'
        "aside = executor.Executor._aside\n"
        "def aside_until_the_start(self, *steps):\n"
        "    executor.Executor._aside = full if len(steps) > 1 else aside_until_the_start\n"
        "    executor.Executor._aside(self, *steps) if len(steps) > 1 else aside(self, *steps)\n"
        "executor.Executor._aside = aside_until_the_start"
    )
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))
    with host(open_directory, agent) as one:
        one.launch("echo never", gpus=GPUS)
        message, outcome = one.end("TASK_FAILED")
        assert "can't start new thread" in message
        assert outcome.infrastructure
        assert (one.states(), one.stdout()) == (["TASK_FAILED"], "")


# --- claims


def test_executor_that_cannot_begin_reports_the_end(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = 'def none(*_, **more): raise OSError(24, "Too many open files")\nexecutor.Work = none'
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))
    with host(open_directory, agent) as one:
        one.launch("true")
        message, outcome = one.end("TASK_FAILED")
        assert ("Too many open files" in message, outcome.infrastructure) == (True, True)


@pytest.mark.parametrize("late", [False, True], ids=["sealed before", "sealed after"])
def test_a_claim_stands_while_the_task_runs_and_is_gone_before_its_last_word(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    code = "import isolator.executor.work as w; w.seal_soon = lambda sandbox: False" if late else ""
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))
    agent.acknowledge = False
    directory = open_directory / f"claims-{time.monotonic_ns()}"  # executors of other tests have a ledger
    directory.mkdir()
    with host(directory, agent) as one:
        one.launch("echo ready; sleep 600", gpus=GPUS)
        ready(one)
        assert [(held.gpus, held.task) for held in one.ledger.holdings()] == [(GPUS, TASK)]
        one.kill()
        one.update("TASK_KILLED")
        assert [(held.gpus, held.is_released) for held in one.ledger.holdings()] == [((), True)] * late
        assert one.process.poll() is None, "it waits for the acknowledgement"


def test_a_refused_claim_names_the_holder(one: Host) -> None:
    me = Owner.of(os.getpid())
    assert one.ledger.claim("other.0", [GPUS[1]], me) == Claimed()
    one.launch("echo never", gpus=GPUS)
    message, data = one.update("TASK_FAILED")
    assert message == "claimed already: GPU-b by other.0"
    assert decode_outcome(data) == Outcome(infrastructure=True, refused_gpus=(GPUS[1],))
    assert one.process.wait(60) == 0
    assert [held.task for held in one.ledger.holdings()] == ["other.0"]
    assert one.stdout() == ""
    assert one.states() == ["TASK_FAILED"]


def test_a_dead_executors_task_is_ended_before_its_gpu_is_given_on(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    mark = unique()
    with host(open_directory, agent) as first:
        first.launch(f"setsid sleep {mark} & wait", gpus=GPUS)
        wait_until("it runs", lambda: sleeps(mark))
        first.process.kill()
        first.process.wait(60)
        assert sleeps(mark), "what it left runs on"
        assert [held.gpus for held in first.ledger.holdings()] == [GPUS]
    with (
        scripted_agent() as next_agent,
        host(open_directory, next_agent, task=f"job-2.{os.getpid()}") as second,
    ):
        second.launch("echo ready; sleep 600", gpus=GPUS)
        ready(second)
        assert sleeps(mark) == []
        second.kill()
        second.end("TASK_KILLED")


def test_a_damaged_ledger_refuses_the_launch(open_directory: Path, agent: ScriptedAgent) -> None:
    directory = open_directory / f"damaged-{time.monotonic_ns()}"
    (directory / "node").mkdir(parents=True)
    (directory / "node" / "ledger.sqlite").write_bytes(b"no database at all" * 100)
    with host(directory, agent) as one:
        one.launch("echo never", gpus=GPUS)
        message, data = one.update("TASK_FAILED")
        assert one.process.wait(60) == 0
    assert "ledger" in message
    assert "To fix:" in message
    assert decode_outcome(data).infrastructure
    assert one.stdout() == ""


def test_after_a_reboot_nothing_is_granted_before_the_monitor_has_looked(one: Host) -> None:
    """Minors may be other cards' by now; and a claim of before the boot is void, whoever has its pid."""
    path = one.ledger.directory / "inventory.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "the one before"}))
    me = Owner.of(os.getpid())
    one.ledger.claim("before.0", GPUS, replace(me, boot_id="the one before"))
    one.launch("echo never", gpus=GPUS)
    message, data = one.update("TASK_FAILED")
    assert "since this host booted" in message
    assert decode_outcome(data).infrastructure
    assert one.stdout() == ""


def test_a_claim_of_before_the_boot_does_not_hold_a_card(one: Host) -> None:
    me = Owner.of(os.getpid())
    one.ledger.claim("before.0", GPUS, replace(me, boot_id="the one before"))
    one.launch("true", gpus=GPUS)
    assert one.end("TASK_FINISHED")[1] == Outcome(exit_status=0)


def test_a_card_that_is_sick_by_now_is_refused_on_the_host(one: Host) -> None:
    """The monitor knows before the scheduler does."""
    sick = replace(INVENTORY.gpus[1], health=Health.SICK, reason="XID 79")
    write_inventory(one.ledger.directory, replace(INVENTORY, gpus=(INVENTORY.gpus[0], sick)))
    one.launch("echo never", gpus=GPUS)
    message, outcome = one.end("TASK_FAILED")
    assert "GPU-b is sick: XID 79" in message
    assert outcome.infrastructure


# --- the agent goes and comes


def test_an_agent_restart_loses_nothing(one: Host) -> None:
    """Unacknowledged task and updates go along, inside the 2 s that an agent gives its executors."""
    one.agent.acknowledge = False
    one.launch("echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 3", gpus=GPUS)
    one.update("TASK_RUNNING")
    # What a restarted agent answers while it recovers; to updates and subscriptions alike.
    one.agent.refuse.extend([404, 503, 503, 403, 503])
    (one.sandbox / "go").touch()
    one.agent.break_stream()
    one.agent.acknowledge = True
    assert one.end("TASK_FAILED")[1] == Outcome(exit_status=3)
    assert not one.agent.refuse
    assert 6 * RETRY_S < 2, "it has asked once more than it was refused"
    again = one.agent.subscribes[1]
    assert [task["task_id"]["value"] for task in again["unacknowledged_tasks"]] == [TASK]
    sent = [update["status"]["state"] for update in again["unacknowledged_updates"]]
    assert sent[:1] == ["TASK_RUNNING"]
    assert one.states() == ["TASK_RUNNING", "TASK_FAILED"]


def test_update_that_is_acknowledged_is_not_sent_again(one: Host) -> None:
    one.launch("echo ready; sleep 600")
    one.update("TASK_RUNNING")
    one.agent.break_stream()
    one.agent.wait_for(lambda: len(one.agent.subscribes) > 1)
    assert one.agent.subscribes[1] == {"unacknowledged_updates": [], "unacknowledged_tasks": []}
    one.kill()
    one.end("TASK_KILLED")


def test_a_launch_that_comes_twice_runs_once(one: Host) -> None:
    one.launch("echo once; sleep 600")
    ready(one, "once")
    one.launch("echo twice")
    one.kill()
    one.end("TASK_KILLED")
    assert one.stdout() == "once\n"


@pytest.mark.parametrize(
    "env", [{"MESOS_CHECKPOINT": "0"}, {"MESOS_RECOVERY_TIMEOUT": "300ms"}], ids=["no checkpoint", "too long"]
)
def test_executor_without_its_agent_ends_the_task(
    open_directory: Path, agent: ScriptedAgent, env: Mapping[str, str]
) -> None:
    mark = unique()
    with host(open_directory, agent, **env) as one:
        one.launch(f"setsid sleep {mark} & echo ready; sleep {mark}", gpus=GPUS)
        one.update("TASK_RUNNING")
        ready(one)
        agent.close()
        assert one.process.wait(60) == 1
        assert sleeps(mark) == []
        assert one.held() == []


def test_an_executor_that_is_not_let_in_ends(open_directory: Path, agent: ScriptedAgent) -> None:
    agent.refuse.extend([403] * 1000)
    with host(open_directory, agent, MESOS_RECOVERY_TIMEOUT="400ms") as one:
        assert one.process.wait(60) == 1
        log = (one.sandbox / "executor.log").read_text()
    assert log.count('"403 ') == 1, "said once, however often it was tried"


def test_the_token_and_the_agents_name_go_with_each_call(open_directory: Path, agent: ScriptedAgent) -> None:
    given = {"MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "secret", "MESOS_SLAVE_PID": "slave(3)@127.0.0.1:1"}
    with host(open_directory, agent, **given) as one:
        one.launch()
        one.end("TASK_FINISHED")
    assert {header["Authorization"] for header in agent.headers} == {"Bearer secret"}
    assert {header[":path"] for header in agent.headers} == {"/slave(3)/api/v1/executor"}
