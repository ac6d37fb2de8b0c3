"""How an executor starts: by a command that needs nothing around it, and with little."""

import os
import subprocess
import sys
from pathlib import Path

from isolator.agent.commands import executor_command
from tests.hosts import Host


def test_executor_start_takes_little_cpu_and_memory(one: Host) -> None:
    """CPU from the start of the process until it has subscribed, and memory then; twice the goal in time, for a
    busy machine."""
    one.agent.wait_for(lambda: bool(one.agent.subscribes))
    fields = Path(f"/proc/{one.process.pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    rss_kib = int(status.partition("VmRSS:")[2].split()[0])
    assert cpu_s < 0.24
    assert rss_kib < 35 * 1024


def test_executor_command_needs_no_environment_and_no_directory() -> None:
    command = executor_command()
    assert os.path.realpath(sys.executable) in command
    # It gets as far as looking for the agent: everything it imports is found.
    ended = subprocess.run(["/bin/sh", "-c", command], env={}, cwd="/", capture_output=True, text=True)
    assert ended.returncode == 1
    assert "KeyError: 'MESOS_AGENT_ENDPOINT'" in ended.stderr
