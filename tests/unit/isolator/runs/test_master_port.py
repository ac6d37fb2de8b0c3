"""Port at which the only task of a job may meet itself."""

import socket

import pytest

from isolator.host.port_ranges import PortGrant
from isolator.runs.gang import with_port
from mesos_gpu.model.tasks.assignment import Assignment

ASKED = {"MASTER_PORT": "0", "PET_MASTER_PORT": "0", "RANK": "0"}


def test_master_port_is_one_free_port_of_the_host() -> None:
    env = with_port(Assignment("j", 1, env=ASKED), "j.1", lambda port: True).env
    assert env["MASTER_PORT"] == env["PET_MASTER_PORT"]
    assert env["RANK"] == "0"
    with socket.socket() as meeting:
        meeting.bind(("127.0.0.1", int(env["MASTER_PORT"])))
        other = with_port(Assignment("j", 1, env=ASKED), "j.1", lambda port: True).env["MASTER_PORT"]
    assert int(other) not in (0, int(env["MASTER_PORT"])), "a port that is taken is passed over"


@pytest.mark.parametrize("own", [{}, {"MASTER_PORT": "29500"}])
def test_master_port_of_a_gang_or_of_the_job_stays(own: dict[str, str]) -> None:
    plan = Assignment("j", 1, env=own)
    assert with_port(plan, "j.1", lambda port: True) is plan


@pytest.mark.parametrize("task_id", [f"j{number}.1" for number in range(40)])
def test_master_port_is_none_of_those_that_agents_give_to_tasks(task_id: str) -> None:
    grant = PortGrant(((9020, 9039), (22000, 22999), (31000, 32000)))
    port = int(with_port(Assignment("j", 1, env=ASKED), task_id, grant.allows).env["MASTER_PORT"])
    assert 10_000 <= port < 30_000
    assert grant.allows(port)
