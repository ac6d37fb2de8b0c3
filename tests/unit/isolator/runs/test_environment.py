"""Environment of a task, by an allow list of the agent's variables."""

import pytest

from isolator.runs.environment import PASSED, image_environment, task_environment
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.tasks.assignment import Assignment

OWN = {
    "MESOS_SANDBOX": "/s",
    "PATH": "/opt/agent",
    "http_proxy": "http://u:p@h",
    "LC_ALL": "C",
    "AWS_KEY": "x",
}


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        ("", set()),
        ("http_proxy", {"http_proxy"}),
        (" http_proxy , NO_PROXY,,", {"http_proxy"}),
        ("AWS_KEY", {"AWS_KEY"}),
    ],
)
def test_passed_variables_reach_all_kinds_of_tasks(named: str, seen: set[str]) -> None:
    own = {**OWN, PASSED: named}
    host = task_environment(own, "t", Assignment("j", 1), {})
    image = image_environment(own, "t", Assignment("j", 1))
    for env in (host, image):
        assert {"http_proxy", "AWS_KEY"} & env.keys() == seen
        assert PASSED not in env
    assert (host["LC_ALL"], "LC_ALL" in image) == ("C", False)


def test_passed_variables_yield_to_those_of_the_job() -> None:
    own = {**OWN, PASSED: "http_proxy,PATH"}
    env = task_environment(own, "t", Assignment("j", 1, env={"http_proxy": "mine"}), {})
    assert (env["http_proxy"], env["PATH"]) == ("mine", "/opt/agent")


@pytest.mark.parametrize(
    "name", ["MESOS_SLAVE_PID", "LIBPROCESS_IP", "CUDA_VISIBLE_DEVICES", "a b", "é", "A=B"]
)
def test_passed_variables_are_names_of_no_secret_of_executors(name: str) -> None:
    with pytest.raises(BadConfiguration, match=PASSED):
        task_environment({**OWN, PASSED: f"TZ,{name}"}, "t", Assignment("j", 1), {})
