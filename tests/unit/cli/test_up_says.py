"""Messages of `mesos-gpu up` about the cluster that it has started."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main, output
from mesos_gpu.cli.local import up
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.local.stack import NodeSpec, Stack

LACK = "no writable /sys/fs/cgroup/{cpu} of cgroup v1"


@pytest.mark.parametrize(("uid", "says"), [(0, False), (1001, True)])
def test_up_secure_without_root_warns_that_tasks_can_read_secrets(
    uid: int, says: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = Stack(tmp_path / "up", [NodeSpec(0)], secure=True)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    up._say_where(stack)
    told = capsys.readouterr()
    assert str(stack.secure and stack.secure.operator) in told.out
    assert ("without root, tasks run as you, and can read these secrets" in told.err) is says


def test_up_attributes_go_to_the_agents_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Stack] = []
    monkeypatch.setattr(up, "_run", made.append)
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
    monkeypatch.setattr(up, "_run", made.append)
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


def test_up_shows_notes_and_steps_of_its_log_and_keeps_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "up.log"
    log.write_text("mesos-gpu: starting Mesos with 2 agents\nmesos-gpu: waiting for agent 1 of 2\ndash")
    with log.open("rb") as written:
        told = up._Told(written)
        told.follow()
        assert capsys.readouterr().err.splitlines() == [
            "mesos-gpu: starting Mesos with 2 agents",
            "mesos-gpu: waiting for agent 1 of 2",
        ]
        with log.open("a") as file:
            file.write("board  http://x\nmesos-gpu: waiting for the scheduler\nlogs  y\n")
        told.follow()
    assert capsys.readouterr().err == "mesos-gpu: waiting for the scheduler\n"
    assert told.text() == "dashboard  http://x\nlogs  y"


def test_up_step_is_one_line_on_a_terminal_and_a_line_of_its_own_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    up._tell_step("the scheduler")
    assert capsys.readouterr().err == "mesos-gpu: waiting for the scheduler\n"
    monkeypatch.setattr("mesos_gpu.cli.output.is_terminal", lambda _: True)
    up._tell_step("agent 1 of 2")
    up._tell_step("the scheduler")
    output.status_line.clear()
    shown = "\r\x1b[Kwaiting for agent 1 of 2\r\x1b[Kwaiting for the scheduler\r\x1b[K"
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize(
    ("uid", "words", "pool"),
    [
        (0, ["--secure"], True),
        (0, [], False),
        (1001, ["--secure"], False),
        (0, ["--secure", "--images", "."], False),
    ],
)
def test_up_secure_gives_jobs_users_of_their_own_where_it_can(
    uid: int, words: list[str], pool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Stack] = []
    monkeypatch.setattr(up, "_run", made.append)
    monkeypatch.setattr(up, "_refuse_closed", lambda _: None)
    monkeypatch.setattr(up, "Stack", lambda *_, **options: options)
    monkeypatch.setattr(up, "lack_of_images", lambda: "")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    done = CliRunner().invoke(main, ["up", "--port", str(free_port()), *words])
    assert done.exit_code == 0, done.output
    (options,) = made
    given = options["scheduler_arguments"]  # type: ignore[index]
    assert ("--same-accounts" in given, f"--user-pool {up.USER_POOL}" in " ".join(given)) == (True, pool)


@pytest.mark.parametrize(
    ("words", "lack", "has"),
    [
        ([], "", True),
        (["--no-images"], "", False),
        (["--secure"], "", False),
        ([], LACK, True),
        (["--secure"], LACK, True),
        (["--no-images"], LACK, False),
    ],
)
def test_up_as_root_has_a_scratch_volume_and_images_where_it_can(
    words: list[str], lack: str, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Stack] = []
    monkeypatch.setattr(up, "_run", made.append)
    monkeypatch.setattr(up, "_refuse_closed", lambda _: None)
    monkeypatch.setattr(up, "Stack", lambda *_, **options: options)
    monkeypatch.setattr(up, "lack_of_images", lambda: lack)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    done = CliRunner().invoke(main, ["up", "--port", str(free_port()), "--volume-root", "/data:ro", *words])
    assert done.exit_code == 0, done.output
    (options,) = made
    scratch, images = up.directory() / "scratch", up.directory() / "images"
    assert options["made"] == {scratch: 0o1777, **({images: 0o755} if has else {})}  # type: ignore[index]
    assert options["images"] == (images if has and not lack else None)  # type: ignore[index]
    assert options["devices"] == ("mesos" if has and not lack else "")  # type: ignore[index]
    given = options["executor_environment"]  # type: ignore[index]
    own = {"MESOS_GPU_IMAGE_REGISTRY": str(images)} if has and lack else {}  # executors run images
    assert given == {"MESOS_GPU_VOLUME_ROOTS": f"/data:ro,{scratch}", "MESOS_GPU_TRIAL": "1", **own}


def test_up_tells_where_images_are_from_or_why_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "lack_of_images", lambda: "no isolation by cgroups: not root")
    given = {"MESOS_GPU_IMAGE_REGISTRY": str(tmp_path)}
    stacks = [Stack(tmp_path / "up", [NodeSpec(0)], executor_environment=each) for each in ({}, given)]
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    for stack in stacks:
        up._say_for_jobs(stack)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("images")]
    assert [line[30:] for line in lines] == [
        "none: no isolation by cgroups: not root",
        f"{tmp_path}: docker save -o {tmp_path}/NAME:TAG.tar NAME:TAG",
    ]
