"""Permits of an operator: read from the command line, and given to the executor."""

import base64

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.permits import Control, Permits
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.scheduler.__main__ import scheduler
from mesos_gpu.scheduler.control import of_cluster
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.wire.mesos.assignment import decode_assignment
from tests.doubles.builders import World, gpu, only, spec

BOTH = (Control.API, Control.MASTER)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--control-access", "lb"], "'lb' is not NAME=LIST or NAME@USER=LIST"),
        (["--control-access", "lb=agent"], "LIST contains api,master"),
        (["--control-access", "lb@Eve=api"], "'lb@Eve=api' is not"),
        (["--control-access", "/lb/../x=api"], "is not"),
        (["--control-access", "//lb=api"], "is not"),
        (["--control-access", "/=api"], "is not"),
        (["--control-access", "/Lb=api"], "is not"),
        (["--control-access", "lb=api", "--control-access", "lb=master"], "lb is given twice"),
        (["--allow-root", "yes"], "'yes' is not one of 'image', 'host'"),
    ],
)
def test_wrong_permits_of_the_scheduler_are_refused(given: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["scheduler", "--master", "m:1", "--state", "/nowhere/s", *given])
    assert done.exit_code == 2
    assert said in done.stderr


def test_names_of_jobs_and_ids_of_apps_are_read_with_their_users() -> None:
    words = ["--control-access", "dns=master", "--control-access", "/shop/lb@haproxy=api,master,api"]
    made = scheduler.make_context("scheduler", ["--master", "m:1", "--state", "/nowhere/s", *words])
    assert made.params["control_access"] == {"dns": (Control.MASTER,), "/shop/lb@haproxy": BOTH}


def told(permits: Permits, **asked: object) -> Assignment:
    """Return the assignment that a scheduler with those permits gives to the executor of a job."""
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    launch = only(world.feed(ev.JobSubmitted(JobId("j1"), spec(**asked))), fx.Launch).tasks[0]
    settings = Settings.of(
        "e",
        "m",
        control_access=permits.control_access,
        default_user=permits.default_user,
        control_ports=(ControlPort("api", 8080, boot_id="b"),),
    )
    known = of_cluster(
        "http://10.0.0.1:5050", ["http://node1:5051", "http://node2:5052", "http://node3:5051"]
    )
    data = to_task_info(launch, settings, control_ports=known)["data"]
    return decode_assignment(base64.b64decode(data))


def test_executor_is_told_what_its_task_may_reach_and_what_there_is() -> None:
    listed = Permits(control_access={"lb": BOTH})
    assignment = told(listed, name="lb", control_access=BOTH)
    assert assignment.control_access == ("api", "master")
    assert assignment.control_ports == (
        ControlPort("api", 8080, boot_id="b"), ControlPort("agent", 5051), ControlPort("agent", 5052),
        ControlPort("master", 5050),
    )  # fmt: skip
    assert told(listed, name="lb").control_access == ()


def test_job_that_an_earlier_list_let_in_reaches_what_the_list_of_today_says() -> None:
    listed = Permits(control_access={"lb@haproxy": (Control.API,), "/lb": BOTH})
    assert told(listed, name="lb", user="haproxy", control_access=BOTH).control_access == ("api",)
    assert told(listed, name="lb", user="alice", control_access=BOTH).control_access == ()
    assert told(listed, name="lb", app="/lb", control_access=BOTH).control_access == ("api", "master")
