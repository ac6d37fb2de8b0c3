"""Messages of `mesos-gpu up` about the cluster that it has started."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.dev import up
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.stack import NodeSpec, Stack


@pytest.mark.parametrize(("uid", "says"), [(0, False), (1001, True)])
def test_up_secure_without_root_warns_that_tasks_can_read_secrets(
    uid: int, says: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = Stack(tmp_path / "up", [NodeSpec(0)], secure=True)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    up._say_where(stack, with_page=True)
    told = capsys.readouterr()
    assert str(stack.secure and stack.secure.operator) in told.out
    assert ("without root, tasks run as you, and can read these secrets" in told.err) is says


def test_up_attributes_go_to_the_agents_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Stack] = []
    monkeypatch.setattr(up, "_run", lambda stack, with_page: made.append(stack))
    line = ["up", "--agents", "3", "--port", str(free_port())]
    more = ["--attribute", "rack=r1,r2", "--attribute", "block=b1", "--topology", "block,rack"]
    done = CliRunner().invoke(main, [*line, *more])
    assert done.exit_code == 0, done.output
    (stack,) = made
    racks = [spec.attributes for _, spec in stack._numbered()]
    assert racks == [{"rack": rack, "block": "b1"} for rack in ("r1", "r2", "r1")]
    assert "--topology block,rack" in " ".join(stack.scheduler._arguments)


def test_up_gpu_models_have_short_names_and_are_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Stack] = []
    monkeypatch.setattr(up, "_run", lambda stack, with_page: made.append(stack))
    line = ["up", "--agents", "3", "--port", str(free_port()), "--gpu-model", "t4", "--gpu-model", "H100"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, done.output
    models = [spec.model for _, spec in made[0]._numbered()]
    assert models == ["Tesla T4", "NVIDIA H100 80GB HBM3", "Tesla T4"]
    assert (
        "unknown GPU model 'Tesla' to simulate"
        in CliRunner().invoke(main, [*line, "--gpu-model", "Tesla"]).output
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rack", "'rack' is not NAME=VALUE[,...], as rack=r1,r2"),
        ("rack=a b", "is not NAME=VALUE[,...]"),
        ("rack=r1,", "is not NAME=VALUE[,...]"),
    ],
)
def test_up_attribute_that_is_malformed_is_a_usage_error(text: str, words: str) -> None:
    done = CliRunner().invoke(main, ["up", "--attribute", text])
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "it must be an object of jobs' ids with lists of steps"),
        ('{"ann": [{"busy_pct": 200}]}', "ann[0].busy_pct must be percent from 0 to 100, got 200"),
        ("{", "use.json: "),
    ],
)
def test_up_script_that_is_malformed_is_a_usage_error(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "use.json"
    path.write_text(text)
    done = CliRunner().invoke(main, ["up", "--use", str(path)])
    assert done.exit_code == 2
    assert words in done.output
