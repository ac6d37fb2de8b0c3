"""The doctor: a master that does not answer, and modes of files."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from isolator.node.findings import Finding, Host, Level
from isolator.node.mesos_access import MASTER, of_master
from isolator.node.private_files import KEPT, private_files, seen_by_others
from mesos_gpu.cli import main


def levels(findings: list[Finding]) -> set[Level]:
    return {finding.level for finding in findings}


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
    assert next(finding.text for finding in private_files(gone)).endswith("typo does not exist")


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
    for said in ("127.0.0.1:1", f"{backup} (0644)", f"chmod go= {backup}", "does not exist"):
        assert said in done.output


def test_a_file_that_goes_while_it_is_looked_at_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database removes files when its last user closes it."""
    directory = tmp_path / "kept"
    directory.mkdir(mode=0o700)
    monkeypatch.setattr(Path, "rglob", lambda *_: iter([directory / "gone-wal"]))
    assert list(seen_by_others(directory, "it", alone=True)) == []
