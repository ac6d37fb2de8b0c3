"""The command `run -it`: the job that it submits, which waits for its session, and its terminal."""

import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

from mesos_gpu.cli.channel.interactive import held
from mesos_gpu.cli.channel.terminal import raw


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "echo $(touch ran)"],
        ["sh", "-c", 'echo "it\'s `touch ran`"'],
        ["echo", "'; touch ran; '"],
        ["printf", "one\ntwo\r\u2028three\x1b[2J", "\\"],
        ["echo", "x" * 500],
        [],
    ],
)
def test_interactive_job_runs_only_the_wait_for_its_session(tmp_path: Path, argv: list[str]) -> None:
    request: dict[str, object] = {"argv": argv, "gpus": 1}
    words = held(request)
    assert words[-len(argv or ["/bin/sh"]) :] == (argv or ["/bin/sh"])
    assert request.keys() == {"command", "gpus"}
    command = str(request["command"])
    assert command.startswith(": session of: ")
    assert command.isprintable()
    (tmp_path / ".session").write_text(
        "99999999\n"
    )  # a process that has ended: no kernel has one of that number
    (tmp_path / ".session.code").write_text("7\n")
    environment = {**os.environ, "MESOS_SANDBOX": str(tmp_path)}
    ran = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"", b"")
    assert not (tmp_path / "ran").exists()


def test_interactive_input_typed_before_raw_mode_is_kept() -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"echo early\n")
        assert select.select([theirs], [], [], 60)[0], "a line is there to be read"
        with raw(theirs):
            assert os.read(theirs, 100) == b"echo early\n"
    finally:
        os.close(ours)
        os.close(theirs)
