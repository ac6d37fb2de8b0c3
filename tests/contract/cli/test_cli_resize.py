"""`mesos-gpu resize`, beside a REST server of its contract."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mesos_gpu.cli.jobs import resize
from tests.contract.cli.cli_rig import call
from tests.doubles.fake_rest import FakeRest

BY = {"memory": "cooperative", "compute": "cooperative", "faults": "contained"}
SHARE = {
    "memory_mib": 10240, "memory_max_mib": 10240, "compute_pct": 30.0, "method": "shim+windows", "instance": None,
    "guarantee": BY,
}  # fmt: skip
ASKED: dict[str, Any] = {
    "state": "asked", "memory_mib": 10240, "memory_max_mib": 10240, "compute_pct": 30.0, "since": 1.0, "reason": None,
    "used_memory_mib": None, "restart": False,
}  # fmt: skip


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        yield server


def job(rest: FakeRest, state: str = "done") -> str:
    id = rest.add("train", gpus=1)
    rest.update(id, state="running", share=SHARE, resize={**ASKED, "state": state})
    return id


def in_use(id: str) -> tuple[int, object]:
    error = {"code": "in-use", "message": f"job {id} is not resized: it uses 12000 MiB", "remedy": "wait"}
    return 409, {"error": error}


def test_resize_command_prints_what_the_job_has_now(rest: FakeRest) -> None:
    id = job(rest)
    rest.fixed[f"PATCH /v1/jobs/{id}"] = (200, rest.jobs[id])
    got = call("resize", id, "--gpu-memory", "10GiB", "--gpu-compute", "30")
    assert (got.exit_code, got.stdout) == (0, f"{id} has 30% 10240 MiB of each GPU\n")
    assert rest.asked[-1] == (f"PATCH /v1/jobs/{id}", {"gpu_memory_mib": 10240, "gpu_compute_pct": 30})


def test_resize_command_says_that_no_answer_has_come_or_waits(rest: FakeRest) -> None:
    id = job(rest, "asked")
    rest.fixed[f"PATCH /v1/jobs/{id}"] = (202, dict(rest.jobs[id]))
    got = call("resize", id, "--gpu-memory", "10GiB")
    assert (got.exit_code, got.stdout) == (
        0, f"{id} is to get 30% 10240 MiB of each GPU; its host has not answered yet\n"
    )  # fmt: skip
    rest.update(id, resize={**ASKED, "state": "done"})
    got = call("resize", id, "--gpu-memory", "10GiB", "--wait")
    assert (got.exit_code, got.stdout) == (0, f"{id} has 30% 10240 MiB of each GPU\n")


def test_below_use_it_fails_or_waits_until_it_may(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    id = job(rest)
    path = f"PATCH /v1/jobs/{id}"
    rest.fixed[path] = in_use(id)
    got = call("resize", id, "--gpu-memory", "10GiB")
    assert (got.exit_code, "it uses 12000 MiB" in got.stderr) == (73, True)
    got = call("resize", id, "--gpu-memory", "10GiB", "--wait", "--timeout", "0.01")
    assert (got.exit_code, "still uses more" in got.stderr) == (124, True)
    monkeypatch.setattr(resize, "_AGAIN_S", 0.01)
    before = len(rest.asked)

    def use_less() -> None:
        rest.until(lambda: sum(asked == path for asked, _ in rest.asked[before:]) >= 3)
        rest.fixed[path] = (200, rest.jobs[id])

    with ThreadPoolExecutor(1) as aside:
        aside.submit(use_less)
        got = call("resize", id, "--gpu-memory", "10GiB", "--wait", "--timeout", "60")
    assert (got.exit_code, got.stderr.count("waiting")) == (0, 1)
    assert got.stdout == f"{id} has 30% 10240 MiB of each GPU\n"


def test_a_host_that_does_not_answer_in_time_is_not_waited_for(rest: FakeRest) -> None:
    for state, path, words in (
        ("asked", "PATCH /v1/jobs/{}", ["--gpu-memory", "10GiB"]),
        ("withdrawing", "DELETE /v1/jobs/{}/resize", ["--withdraw"]),
    ):
        id = job(rest, state)
        rest.fixed[path.format(id)] = (202, dict(rest.jobs[id]))
        got = call("resize", id, *words, "--wait", "--timeout", "0.1")
        assert (got.exit_code, "its host has not answered yet" in got.stdout) == (124, True)
        (answer_s,) = rest.queries[path.format(id)]["timeout_s"]
        assert float(answer_s) <= 0.1, "the scheduler does not hold the answer back for longer"
    assert call("resize", id, "--gpu-memory", "10GiB", "--timeout", "1").exit_code == 2


def test_resize_command_says_whether_the_job_may_borrow(rest: FakeRest) -> None:
    id = job(rest)
    rest.update(id, gpu_memory_max_mib=20480)
    rest.fixed[f"PATCH /v1/jobs/{id}"] = (200, rest.jobs[id])
    said = call("resize", id, "--gpu-memory-max", "20GiB").stdout
    assert said == f"{id} has 30% 10240 MiB of each GPU, without the requested maximum beyond it\n"
    assert (
        "10240 MiB of each, without the requested maximum beyond it; CUDA library (cooperative); faults contained"
        in call("show", id).stdout
    )
    rest.update(id, share={**SHARE, "memory_max_mib": 20480})
    said = call("resize", id, "--gpu-memory-max", "20GiB").stdout
    assert said == f"{id} has 30% 10240 MiB of each GPU, up to 20480 MiB while other shares leave it free\n"


def test_resize_command_without_an_amount_is_refused(rest: FakeRest) -> None:
    got = call("resize", job(rest))
    assert (got.exit_code, "--gpu-memory" in got.stderr) == (2, True)


def test_a_resize_is_withdrawn(rest: FakeRest) -> None:
    id = job(rest, "withdrawing")
    path = f"DELETE /v1/jobs/{id}/resize"
    rest.fixed[path] = (202, dict(rest.jobs[id]))
    got = call("resize", id, "--withdraw")
    assert (got.exit_code, "its host has not answered yet" in got.stdout) == (0, True)
    assert rest.asked[-1][0] == path
    assert "as before, and its host has not answered yet" in call("show", id).stdout
    rest.update(id, resize={**ASKED, "state": "withdrawn"})
    got = call("resize", id, "--withdraw", "--wait")
    assert (got.exit_code, got.stdout) == (0, f"{id} has 30% 10240 MiB of each GPU\n")
    for more in (["--gpu-memory", "10GiB"], ["--restart"]):
        assert call("resize", id, "--withdraw", *more).exit_code == 2
