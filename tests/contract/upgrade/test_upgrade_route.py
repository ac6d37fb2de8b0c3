"""GET /v1/upgrade and `mesos-gpu upgrade plan`: what runs on hosts, and what this program would do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu import __version__
from mesos_gpu.adapters.sqlite.schema import latest
from mesos_gpu.api.spec.cluster.upgrade import Flag
from mesos_gpu.cli import main
from mesos_gpu.model.nodes.gpu import Inventory, Program
from mesos_gpu.model.nodes.wires import OLDEST, WIRE
from mesos_gpu.scheduler.__main__ import scheduler
from mesos_gpu.scheduler.options.cluster.flags import flags_of
from mesos_gpu.wire.hosts.program import encode_program
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu

OURS = Program("0.1.0", WIRE, OLDEST, "ab" * 32)
G0, G1 = gpu("g0"), gpu("g1")


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(flags=tuple(flags_of(scheduler)))
    rig.node("a1", (G0,))
    rig.node("a2", (G1,))
    rig.tell(Inventory((G0,), "simulated", program=OURS), "a1")
    yield rig
    rig.close()


def planned(rig: Rig, *words: str) -> Result:
    return CliRunner().invoke(main, ["--url", rig.url, "upgrade", "plan", *words], prog_name="mesos-gpu")


def unfit_of_first(rig: Rig) -> str:
    return rig.call("GET", "/v1/upgrade").json()["nodes"][0]["unfit"] or ""


def test_upgrade_route_tells_versions_on_hosts(rig: Rig) -> None:
    job = rig.submit(gpus=1, timeout_s=60.0)["id"]
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{job}").json()["state"] == "starting")
    (task,) = rig.call("GET", f"/v1/jobs/{job}/tasks").json()["tasks"]
    agent = str(task["agent_id"])
    rig.status(f"{job}.1", "TASK_STARTING", agent, encode_program(__version__))
    wait_until("it is told", lambda: rig.call("GET", "/v1/upgrade").json()["executors"][0]["version"])
    said = rig.call("GET", "/v1/upgrade").json()
    assert (said["version"], said["wire"], said["oldest"], said["schema"]) == (
        "0.1.0",
        WIRE,
        OLDEST,
        latest(),
    )
    one, two = said["nodes"]
    assert one == {
        "hostname": "a1.example", "agent_id": "a1", "outdated": None, "unfit": None, "replaced_now": False,
        "problem": None,
        "program": {"version": "0.1.0", "wire": WIRE, "oldest": OLDEST, "digest": "ab" * 32},
    }  # fmt: skip
    assert (two["hostname"], two["program"]) == ("a2.example", None)
    (kind,) = said["executors"]
    assert (kind["version"], kind["wire"], kind["tasks"], kind["unlimited"]) == (__version__, WIRE, 1, 0)
    assert kind["last_ends_at"] == rig.clock.now() + 60 + 5
    assert {"name": "--port", "given": False, "default": "8080"} in said["flags"]


def test_upgrade_route_tells_unreachable_programs_with_a_remedy(rig: Rig) -> None:
    rig.tell(Inventory((G0,), program=Program("9.9", WIRE + 2, WIRE + 1)), "a1")
    wait_until("it is told", lambda: unfit_of_first(rig))
    words = unfit_of_first(rig)
    assert "start a newer scheduler" in words
    (card,) = [each for each in rig.call("GET", "/v1/gpus").json()["gpus"] if each["uuid"] == "g0"]
    assert (card["health"], card["reason"]) == ("unknown", words)
    states = {each["hostname"]: each["state"] for each in rig.call("GET", "/v1/nodes").json()["nodes"]}
    assert states == {"a1.example": "unfit", "a2.example": "up"}


def test_the_command_says_what_this_program_would_do(rig: Rig) -> None:
    rig.tell(Inventory((G1,), program=OURS), "a2")
    wait_until("all is well", lambda: planned(rig).output.endswith("nothing to do\n"))
    rig.tell(Inventory((G1,)), "a2")
    # On a busy machine what is told may be a moment old.
    wait_until(
        "it is told", lambda: "monitor of a2.example: it does not report its release" in planned(rig).output
    )
    assert planned(rig).exit_code == 0
    for form in (["-o", "json"], ["--json"]):
        document = json.loads(planned(rig, *form).output)
        assert (document["needed"], document["in_the_way"]) == (True, [])
        assert [each["hostname"] for each in document["monitors"]] == ["a2.example"]


def test_an_archive_that_hosts_are_to_have_is_held_against_theirs(rig: Rig, tmp_path: Path) -> None:
    archive = tmp_path / "mesos-gpu-executor.pyz"
    archive.write_bytes(b"another")
    words = f"monitor of a1.example: its program is {'ab' * 6}, not "
    wait_until("it is told", lambda: words in planned(rig, "--executor-archive", str(archive)).output)


def test_the_exit_code_says_that_something_is_in_the_way() -> None:
    gone: Flag = {"name": "--from-before", "given": True, "default": None}
    rig = Rig(flags=(gone,))
    try:
        done = planned(rig)
    finally:
        rig.close()
    assert done.exit_code == 1
    assert "in the way: the scheduler was started with --from-before" in done.output
