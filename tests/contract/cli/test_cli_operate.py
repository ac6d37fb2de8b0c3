"""`mesos-gpu gpu` and `node` against a real scheduler's REST interface: output, exit codes, wrong use."""

import getpass
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.cli.output import stamp
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Health, Transition
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer

STORY = (
    Transition(1001.0, Health.OK, Health.SICK, "XID 79\x1b[2J"),
    Transition(1011.0, Health.SICK, Health.OK, "rechecked"),
)
ONE, TWO = replace(gpu("GPU-1"), history=STORY), replace(gpu("GPU-2"), warnings=("hot",))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(ONE, TWO), isolation="cgroup2")
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield rig
    rig.close()


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="mesos-gpu")


def good(*words: str) -> str:
    got = call(*words)
    assert got.exit_code == 0, got.output
    return got.stdout


def test_the_story_of_a_card(rig: Rig) -> None:
    good("gpu", "drain", "a1.example:1", "--reason", "new fan", "--deadline", "30m")
    until = stamp(rig.clock.now() + 1800)
    text = good("gpu", "health", "GPU-1")
    assert f"health     drained\nsince      {stamp(1000.0)}\nnode says  ok\n" in text
    by = getpass.getuser()
    assert (
        f"drain      is drained since {stamp(1000.0)} by {by}: new fan, running jobs end at {until}\n" in text
    )
    rows = text.splitlines()[-4:]
    assert rows[0].split() == ["TIME", "FROM", "TO", "REASON"]
    assert rows[1].endswith(f"ok    drained  drained by {by}: new fan")
    assert rows[2] == rf"{stamp(1001.0)}  ok    sick     XID 79\x1b[2J"
    assert rows[3] == f"{stamp(1011.0)}  sick  ok       rechecked"
    shown = json.loads(good("gpu", "health", "GPU-1", "--json"))
    assert [change["new"] for change in shown["history"]] == ["drained", "sick", "ok"]
    assert (
        good("gpu", "undrain", "GPU-1")
        == "GPU-1 is no longer drained: new work may start there; its health is ok\n"
    )


def test_gpu_health_shows_all_cards(rig: Rig) -> None:
    good("gpu", "drain", "GPU-1", "--reason", "fan")
    rows = good("gpu", "health").splitlines()
    assert rows[0].split() == ["HOST", "INDEX", "UUID", "HEALTH", "SINCE", "REASON"]
    assert rows[1].split()[:4] == ["a1.example", "1", "GPU-1", "drained"]
    assert rows[2].endswith("GPU-2  ok       -                     warning: hot")
    listed = good("gpu", "list").splitlines()
    assert listed[0].split() == [
        "HOST",
        "INDEX",
        "MODEL",
        "HEALTH",
        "FOR",
        "NODE",
        "SAYS",
        "UUID",
        "BUS_ID",
        "JOB",
        "SHARE",
        "REASON",
    ]
    assert len(listed) == 3
    for words in (["gpu", "list"], ["gpu", "health"]):
        assert [g["uuid"] for g in json.loads(good(*words, "--json"))] == ["GPU-1", "GPU-2"]


def test_several_cards_and_a_deadline_that_is_now(rig: Rig) -> None:
    cards = json.loads(good("gpu", "drain", "GPU-1", "GPU-2", "--reason", "x", "--deadline", "0", "--json"))
    assert [g["drain"]["deadline_at"] for g in cards] == [1000.0, 1000.0]
    assert len(good("gpu", "undrain", "GPU-1", "GPU-2").splitlines()) == 2


def test_nodes_are_drained_listed_and_given_back(rig: Rig) -> None:
    line = good("node", "drain", "a1.example", "--reason", "move")
    assert line.startswith("a1.example is drained since ")
    assert line.endswith(": move, 0 tasks on it\n")
    listed = good("node", "list").splitlines()
    assert listed[1].split()[-4:-2] == ["move", "-"]
    assert good("nodes") == good("node", "list")
    assert "drained with its node" in good("gpu", "health", "GPU-1")
    assert call("gpu", "undrain", "GPU-1").exit_code == 73
    assert good("node", "undrain", "a1") == "a1.example is no longer drained: new work may start there\n"
    assert json.loads(good("node", "list", "--json"))[0]["isolation"] == "cgroup2"


def test_the_first_part_of_a_host_is_enough_where_it_is_unique(rig: Rig) -> None:
    for agent, host in (("s1", "c.example"), ("s2", "c.other"), ("s3", "d.example"), ("s4", "127.0.0.11")):
        rig.daemon.put(ev.OffersArrived((replace(offer(f"o-{agent}", agent), hostname=host),)))
    assert good("node", "drain", "d", "--reason", "x").startswith("d.example is drained")
    assert json.loads(good("gpu", "health", "a1:1", "--json"))["uuid"] == "GPU-1"
    assert call("node", "drain", "127", "--reason", "x").exit_code == 66, "an address has no first part"
    several = call("node", "drain", "c", "--reason", "x")
    assert several.exit_code == 73
    assert "c names 2 nodes: c.example, c.other" in several.stderr
    assert good("node", "drain", "c.example", "--reason", "x").startswith("c.example is drained")


def test_a_drain_counts_the_jobs_and_not_the_monitor(rig: Rig) -> None:
    rig.submit(gpus=1)
    wait_until("it is launched", lambda: len(rig.call("GET", "/v1/tasks").json()["tasks"]) == 2)
    assert good("node", "drain", "a1", "--reason", "x").endswith(": x, 1 task on it\n")


def test_the_first_of_several_is_told_before_the_second_fails(rig: Rig) -> None:
    got = call("gpu", "drain", "GPU-1", "GPU-9", "--reason", "x")
    assert (got.exit_code, got.stdout.startswith("GPU-1 is drained since ")) == (66, True)


def test_a_drain_of_what_is_away_is_given_back(rig: Rig) -> None:
    good("gpu", "drain", "GPU-1", "--reason", "x")
    good("node", "drain", "a1", "--reason", "x")
    rig.daemon.put(ev.AgentLost(AgentId("a1")))
    (monitor,) = rig.daemon.read(lambda view: list(view.tasks)).result(60)
    rig.status(monitor, "TASK_GONE")
    rig.clock.time += Settings.of("", "").memory.keep_lost_nodes_s + 1
    wait_until("it is forgotten", lambda: rig.call("GET", "/v1/nodes").json()["nodes"] == [])
    assert "GPU-1 is not connected" in call("gpu", "undrain", "GPU-1").stderr
    assert "a1.example is not connected" in call("node", "undrain", "a1.example").stderr
    assert rig.call("GET", "/v1/status").json()["drains"] == []


def test_a_reset_is_asked_of_the_node_and_shown(rig: Rig) -> None:
    line = good("gpu", "reset", "GPU-2", "--reason", "stuck")
    request = rig.call("GET", "/v1/gpus/GPU-2").json()["reset"]["request"]
    assert line == f"GPU-2: reset {request} requested from a1.example\n"
    assert f"reset      {request}, requested" in good("gpu", "health", "GPU-2")
    again = call("gpu", "reset", "GPU-2", "--reason", "stuck")
    assert (again.exit_code, "is in reset" in again.stderr) == (73, True)


WRONG: list[tuple[list[str], int, str]] = [
    (["gpu"], 2, "Usage: mesos-gpu gpu"),
    (["gpu", "drian"], 2, "Did you mean"),
    (["gpu", "drain", "GPU-1"], 2, "Missing option '--reason'"),
    (["gpu", "drain", "--reason", "x"], 2, "Missing argument 'GPU...'"),
    (["gpu", "drain", "GPU-1", "--reason", "x", "--deadline", "soon"], 2, "'soon' is not a time span"),
    (["gpu", "drain", "GPU-1", "--reason", " "], 65, "/reason: must have the reason"),
    (
        ["gpu", "drain", "../jobs", "--reason", "x"],
        2,
        "is not a GPU: its UUID, the start of one, or HOST:INDEX",
    ),
    (["gpu", "health", "GPU-9"], 66, "there is no GPU GPU-9"),
    (["gpu", "health", "GPU"], 73, "GPU names 2 GPUs: GPU-1, GPU-2"),
    (["gpu", "undrain", "GPU-1"], 66, "GPU-1 is not drained"),
    (["node", "drain", "nowhere", "--reason", "x"], 66, "there is no node nowhere"),
    (
        ["node", "drain", "a1.examp1e", "--reason", "x"],
        66,
        "did you mean a1.example? list the nodes with",
    ),
    (["gpu", "drain", "a1:7", "--reason", "x"], 66, "did you mean a1:"),
    (["node", "undrain", "a1/x"], 2, "is not a node"),
    (["run"], 2, "Missing argument 'CMD...'"),
    (["run", "--shell", "--image", "a"], 2, "Missing argument 'CMD...'"),
    (["run", "--image", "A:b", "--", "x"], 65, "--image: must be an image"),
    (["run", "--container-engine", "docker", "--", "x"], 65, "--container-engine: needs an image"),
    (["run", "--on-gpu-failure", "panic", "--", "x"], 2, "'panic' is not one of"),
    (
        ["run", "--min-driver", "new", "--", "x"],
        2,
        "'new' is not a driver version, such as 535 or 535.104.05",
    ),
]


def test_wrong_words_of_an_operator_are_refused(rig: Rig) -> None:
    for words, code, message in WRONG:
        got = call(*words)
        assert (got.exit_code, message in got.output) == (code, True), (words, got.output)


def test_run_takes_an_image_without_a_command(rig: Rig) -> None:
    job_id = good("run", "-d", "--image", "nvidia/cuda:12", "--on-gpu-failure", "ignore",
                  "--min-driver", "535.104").strip()  # fmt: skip
    job = rig.call("GET", f"/v1/jobs/{job_id}").json()
    assert (job["name"], job["argv"], job["image"]) == ("cuda", None, "nvidia/cuda:12")
    assert (job["container_engine"], job["on_gpu_failure"]) == ("mesos", "ignore")
    shown = good("show", job_id)
    assert "image         nvidia/cuda:12 (mesos)\n" in shown
    assert "min driver    535.104\n" in shown


def test_names_of_cards_and_nodes_are_completed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, incomplete, want in (("gpu", "G", "GPU-1"), ("node", "a", "a1.example")):
        monkeypatch.setenv("COMP_WORDS", f"mesos-gpu {kind} drain {incomplete}")
        monkeypatch.setenv("COMP_CWORD", "3")
        monkeypatch.setenv("_MESOS_GPU_COMPLETE", "bash_complete")
        assert want in call().stdout
