"""`make demo-cluster`: the leader of each kind is killed under work, on hosts of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.local import network, zookeeper
from tests.starts.needs import NAMESPACES, ZOOKEEPER

DEMO_S = 120  # on a machine that does nothing else
needs_hosts = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.timeout(4 * DEMO_S),
    *NAMESPACES,
    ZOOKEEPER,
]


def told(*words: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MESOS_GPU_HOME": str(tmp_path), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "mesos_gpu", "demo", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=3.5 * DEMO_S, check=False)


class TestDemo:
    pytestmark = needs_hosts

    def test_demo_of_a_cluster_kills_the_leader_of_each_kind_and_loses_nothing(self, tmp_path: Path) -> None:
        demo = told("--cluster", tmp_path=tmp_path)
        print(demo.stdout)
        assert demo.returncode == 0, demo.stdout + demo.stderr
        lines = demo.stdout.splitlines()
        assert all(re.match(r" *[0-9]+\.[0-9] s  \S", line) for line in lines), "each says its time"
        times = [float(line.split()[0]) for line in lines]
        assert times == sorted(times)
        killed = re.findall(r"killed with SIGKILL: (.*)", demo.stdout)
        assert [re.sub(r"-[0-9]", "", each) for each in killed] == [
            "the scheduler that leads",
            "master, which leads",
            "zookeeper, which leads",
        ]
        assert lines[-2].endswith("demo: 0 things wrong, 0 jobs lost")
        assert lines[-1].endswith("all is stopped and removed")


def test_demo_of_a_cluster_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    told = CliRunner().invoke(main, ["demo", "--cluster"])
    assert told.exit_code == 69, told.output
    assert "network namespaces need root" in told.output
    assert "To fix: run it as root" in told.output


def test_demo_of_a_cluster_names_the_package_of_zookeeper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(network, "check", lambda: None)
    monkeypatch.setattr(zookeeper, "JAR", tmp_path / "none.jar")
    told = CliRunner().invoke(main, ["demo", "--cluster"])
    assert told.exit_code == 69, told.output
    assert "apt-get install -y zookeeper" in told.output


def test_demo_refuses_two_stories_at_once() -> None:
    told = CliRunner().invoke(main, ["demo", "--cluster", "--tenants"])
    assert told.exit_code == 2
    assert "choose one" in told.output
