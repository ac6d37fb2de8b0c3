"""Messages of `mesos-gpu up` about the cluster that it has started."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.dev import up
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
