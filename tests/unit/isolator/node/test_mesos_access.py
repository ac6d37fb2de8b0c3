"""Whether a Mesos authenticates its callers, as the doctor sees it: one that does not, and one that does. Modes of
files."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from isolator.node import doctor
from isolator.node.findings import Finding, Host, Level
from isolator.node.mesos_access import AGENT, AGENTS, MASTER, Daemon, looked_at, of_master, secret_files
from isolator.node.private_files import KEPT, private_files, seen_by_others
from isolator.runs.images import flags_of
from mesos_gpu.adapters.credentials import read
from mesos_gpu.cli import main
from mesos_gpu.local.cluster import AgentSpec, Cluster
from mesos_gpu.local.secure import Secure


def levels(findings: list[Finding]) -> set[Level]:
    return {finding.level for finding in findings}


@pytest.mark.cluster
def test_a_mesos_that_asks_nobody_is_named_with_each_remedy(tmp_path: Path) -> None:
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
        f"{agent}: whoever reaches them starts commands as root"
    ]
    remedies = " ".join(finding.remedy for finding in of_this_agent)
    for flag in ("authenticate_http_executors", "authenticate_http_readonly", "http_credentials", "acls"):
        assert f"--{flag}" in remedies, flag


@pytest.mark.cluster
def test_a_mesos_that_asks_everybody_is_right(tmp_path: Path) -> None:
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
    assert (unseen.level, "does not tell its flags: 401" in unseen.text) == (Level.WARN, True)
    assert (unanswered.level, "nobody answers" in unanswered.text) == (Level.OK, True)
    host = Host(tmp_path, None)
    assert list(secret_files(host, flags)) == []
    (secure.directory / "executors-key").chmod(0o644)
    (wrong,) = secret_files(host, flags)
    assert (wrong.level, "--jwt_secret_key" in wrong.text) == (Level.FAIL, True)


def test_doctor_names_a_master_that_does_not_answer() -> None:
    (finding,) = of_master("127.0.0.1:1", {})
    assert (finding.check, finding.level) == (MASTER, Level.FAIL)


def test_files_that_others_can_read_are_named(tmp_path: Path) -> None:
    state, journal = tmp_path / "kept" / "state.sqlite", tmp_path / "journal"
    for directory in (state.parent, journal):
        directory.mkdir(mode=0o700)
    for file in (state, journal / "1.log", journal / "2.log"):
        file.touch(mode=0o600)
    env = {"MESOS_GPU_STATE": str(state), "MESOS_GPU_JOURNAL": str(journal)}
    host = Host(tmp_path / "node", None, env)
    assert levels(list(private_files(host))) == {Level.OK}
    (journal / "2.log").chmod(0o640)
    state.parent.chmod(0o711)
    findings = {finding.level: finding for finding in private_files(host) if finding.level is not Level.OK}
    assert f"{journal / '2.log'} (0640)" in findings[Level.FAIL].text
    assert findings[Level.FAIL].remedy == f"chmod -R go= {journal}"
    assert findings[Level.WARN].remedy.endswith(f"chmod 700 {state.parent}")
    gone = Host(tmp_path / "node", None, {"MESOS_GPU_STATE": str(tmp_path / "typo")})
    assert next(finding.text for finding in private_files(gone)).endswith("typo is not there")


def test_doctor_looks_at_each_kept_file(tmp_path: Path) -> None:
    for kept in KEPT:
        path = tmp_path / kept.variable
        path.touch()
        path.chmod(0o644)
        findings = list(private_files(Host(tmp_path / "node", None, {kept.variable: str(path)})))
        assert findings[0].level is Level.FAIL
        assert kept.what in findings[0].text


def test_a_link_is_not_followed_out_of_a_directory(tmp_path: Path) -> None:
    directory, outside = tmp_path / "kept", tmp_path / "outside"
    directory.mkdir(mode=0o700)
    outside.touch()
    (directory / "link").symlink_to(outside)
    assert list(seen_by_others(directory, "it", alone=True)) == []


def test_access_command_looks_at_the_named_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = tmp_path / "backup.sqlite"
    backup.touch()
    backup.chmod(0o644)
    monkeypatch.setattr("mesos_gpu.cli.host.doctor.checks.diagnose", lambda *_: ())
    monkeypatch.setenv("MESOS_GPU_HOME", os.fspath(tmp_path))
    words = [
        "doctor",
        "--master",
        "127.0.0.1:1",
        "--private",
        str(backup),
        "--private",
        str(tmp_path / "none"),
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    for said in ("127.0.0.1:1", f"{backup} (0644)", f"chmod go= {backup}", "is not there"):
        assert said in done.output


def test_a_file_that_goes_while_it_is_looked_at_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database removes files when its last user closes it."""
    directory = tmp_path / "kept"
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(Path, "rglob", lambda *_: iter([directory / "gone-wal"]))
    assert list(seen_by_others(directory, "it", alone=True)) == []
