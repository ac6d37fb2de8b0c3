"""The doctor beside a real Mesos: flags of its agent, and whether its master and agents authenticate callers."""

import json
from pathlib import Path

import pytest

from isolator.agent.flags import flags_of
from isolator.images.source import registry_of
from isolator.node import doctor
from isolator.node.findings import Finding, Host, Level
from isolator.node.mesos_access import AGENT, AGENTS, MASTER, Daemon, looked_at, of_master, secret_files
from mesos_gpu.adapters.credentials import read
from mesos_gpu.local.cluster import AgentSpec, Cluster
from mesos_gpu.local.secure import Secure
from tests.hosts import driver_volume
from tests.unit.isolator.node.test_doctor import Scene

pytestmark = pytest.mark.cluster


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Make a GPU host of files, in which all is well."""
    driver_volume(tmp_path / "store", "535.183.01")
    return Scene(tmp_path / "root", tmp_path / "store")


def levels(findings: list[Finding]) -> set[Level]:
    return {finding.level for finding in findings}


def test_doctor_reads_the_flags_of_a_real_agent(scene: Scene, tmp_path: Path) -> None:
    spec = AgentSpec(resources={"cpus": 1, "mem": 64, "gpus": 2})
    with Cluster(tmp_path / "cluster", [spec]) as cluster:
        scene.env["MESOS_GPU_AGENT"] = cluster.agents[0].url.removeprefix("http://")
        findings = scene.findings("agent")
    assert any("its GPUs have no role" in f.text for f in findings), findings
    assert not any(f.level is Level.FAIL for f in findings)


def test_doctor_asks_an_agent_with_credentials(scene: Scene, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(json.dumps({"credentials": [{"principal": "p", "secret": "s"}]}))
    scene.file("etc/own", "p s")
    scene.root.joinpath("etc/own").chmod(0o600)
    flags = {
        "authenticate_http_readwrite": "true", "authenticate_http_readonly": "true", "http_credentials": str(known),
    }  # fmt: skip
    spec = AgentSpec(resources={"cpus": 1, "mem": 64, "gpus": 2}, flags=flags)
    with Cluster(tmp_path / "cluster", [spec]) as cluster:
        scene.env |= {
            "MESOS_GPU_AGENT": cluster.agents[0].url.removeprefix("http://"),
            "MESOS_GPU_CONTROL_PORTS": "off",
        }
        (refused,) = scene.findings("agent")
        scene.env["MESOS_GPU_AGENT_CREDENTIALS"] = "/etc/own"
        findings, (ports,) = scene.findings("agent"), scene.findings("ports")
    assert (refused.level, "MESOS_GPU_AGENT_CREDENTIALS" in refused.remedy) == (Level.FAIL, True)
    assert not any(f.level is Level.FAIL for f in findings)
    assert (ports.level, "asks for credentials" in ports.text) == (Level.WARN, True)


def test_doctor_names_a_mesos_without_authentication_with_each_remedy(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", [AgentSpec()]) as cluster:
        master, agent = (each.url.removeprefix("http://") for each in (cluster.master, cluster.agents[0]))
        of_this_master = list(of_master(master, {}))
        of_this_agent = list(looked_at(Daemon(AGENT, agent), flags_of(agent)))
    assert levels([*of_this_master, *of_this_agent]) == {Level.WARN}
    remedies = " ".join(finding.remedy for finding in of_this_master)
    for flag in (
        "authenticate_frameworks", "authenticate_http_frameworks", "authenticate_agents", "authenticate_http_readonly",
        "authenticate_http_readwrite", "credentials", "acls",
    ):  # fmt: skip
        assert f"--{flag}" in remedies, flag
    assert [finding.text for finding in of_this_master if finding.check == AGENTS] == [
        f"{agent}: anyone who reaches them can run commands as root"
    ]
    remedies = " ".join(finding.remedy for finding in of_this_agent)
    for flag in ("authenticate_http_executors", "authenticate_http_readonly", "http_credentials", "acls"):
        assert f"--{flag}" in remedies, flag


def test_doctor_finds_no_fault_in_a_mesos_with_authentication(tmp_path: Path) -> None:
    secure = Secure(tmp_path / "secrets")
    secure.write()
    with Cluster(tmp_path / "cluster", [AgentSpec()], secure=secure) as cluster:
        master, agent = (each.url.removeprefix("http://") for each in (cluster.master, cluster.agents[0]))
        known = {
            name: {"Authorization": read(secure.directory / name).header}
            for name in ("framework", "executor")
        }
        of_this_master = list(of_master(master, known["framework"]))
        flags = flags_of(agent, authorization=known["executor"])
        of_this_agent = list(looked_at(Daemon(AGENT, agent), flags))
        (refused,) = of_master(master, {})
        (unseen,) = doctor.names(Host(tmp_path / "node", None, {"MESOS_GPU_AGENT": agent}))
    (unanswered,) = doctor.names(Host(tmp_path / "node", None, {"MESOS_GPU_AGENT": agent}))
    assert levels([*of_this_master, *of_this_agent]) == {Level.OK}
    assert {finding.check for finding in of_this_master} == {MASTER, AGENTS}
    assert (refused.level, "--mesos-credentials" in refused.remedy) == (Level.FAIL, True)
    assert (unseen.level, "does not show its flags: 401" in unseen.text) == (Level.WARN, True)
    assert (unanswered.level, "no agent answers" in unanswered.text) == (Level.OK, True)
    host = Host(tmp_path, None)
    assert list(secret_files(host, flags)) == []
    (secure.directory / "executors-key").chmod(0o644)
    (wrong,) = secret_files(host, flags)
    assert (wrong.level, "--jwt_secret_key" in wrong.text) == (Level.FAIL, True)


def test_flags_of_a_real_agent_are_read(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", [AgentSpec(flags={"docker_registry": str(tmp_path)})]) as cluster:
        flags = flags_of(cluster.agents[0].url.removeprefix("http://"), prefix="/slave(1)")
    assert flags["docker_registry"] == str(tmp_path)
    assert "isolation" in flags
    assert registry_of(flags, {}) == str(tmp_path)
