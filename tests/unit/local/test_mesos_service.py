"""Mesos' master and agent as services of a host: their flags, who is believed, and what is executed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from isolator.node.findings import Level
from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.libmesos import fetch, master, program
from mesos_gpu.libmesos.check import diagnose
from mesos_gpu.libmesos.cxx import CallFailed
from mesos_gpu.libmesos.service import Service

NAMES = (
    "--authenticate_agents", "--authenticate_frameworks=true", "--authenticate_http_frameworks", "--acls=/a",
    "--authenticate_http_readonly", "--authenticate_http_readwrite", "--credentials=/c",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in os.environ if name.startswith("MESOS_") and not name.startswith("MESOS_GPU_")
    ]:
        monkeypatch.delenv(name)


def test_flags_are_mesos_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESOS_QUORUM", "2")
    monkeypatch.setenv("MESOS_IP", "10.0.0.1")
    given = program.given(["--ip=127.0.0.1", "--authenticate_agents", "--no-log_auto_initialize"], {})
    assert (given["quorum"], given["ip"]) == ("2", "127.0.0.1"), "those of the command come before variables"
    assert (given["authenticate_agents"], given["log_auto_initialize"]) == ("true", "false")


def test_master_serves_the_page_of_this_package_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (flag,) = master.page(program.given(["--ip=127.0.0.1"], {}))
    assert Path(flag.removeprefix("--webui_dir="), "index.html").is_file()
    assert master.page(program.given(["--webui_dir=/usr/share/mesos/webui"], {})) == []
    monkeypatch.setenv("MESOS_WEBUI_DIR", "/usr/share/mesos/webui")
    assert master.page(program.given([], {})) == []


@pytest.mark.parametrize("words", ["ip=127.0.0.1", "-ip", "x"])
def test_mesos_argument_that_is_no_flag_is_named(words: str) -> None:
    with pytest.raises(CallFailed, match=words):
        program.given([words], {})


@pytest.mark.parametrize(
    ("kind", "flag", "may"),
    [
        ("master", "--modules=/m.json", "leave it out"),
        ("master", "--allocator=other", "the only value is hierarchical"),
        ("agent", "--hooks=x", "leave it out"),
    ],
)
def test_a_flag_of_what_the_library_lacks_is_refused_unless_mesos_own_programs_run(
    kind: str, flag: str, may: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfiguration, match=may):
        Service(kind, (flag,)).flags()
    assert Service(kind, (flag,), tmp_path).flags()


@pytest.mark.parametrize(
    ("url", "servers", "credentials", "path"),
    [
        ("zk://a:2181,b:2182/mesos", "a:2181,b:2182", "", "/mesos"),
        ("zk://u:p@a/x/y", "a", "u:p", "/x/y"),
    ],
)
def test_mesos_zookeeper_url_is_parsed(url: str, servers: str, credentials: str, path: str) -> None:
    zk = program.ZooKeeper(url)
    assert (zk.servers, zk.credentials, zk.path, str(zk)) == (servers, credentials, path, url)


@pytest.mark.parametrize("url", ["zk://a:2181", "zk://a/", "zk:///x", "a:2181/x", "http://a/x"])
def test_mesos_zookeeper_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(CallFailed, match="zk://HOST:PORT"):
        program.zookeeper(url)


def test_a_zookeeper_url_with_a_password_is_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "zk"
    path.write_text("zk://u:secret@a:2181/mesos\n")
    assert program.zookeeper(f"file://{path}").credentials == "u:secret"  # type: ignore[union-attr]
    with pytest.raises(CallFailed, match="No such file"):
        program.zookeeper(f"file://{path}x")
    assert program.zookeeper("") is None


def test_mesos_service_that_can_be_reached_must_authenticate() -> None:
    with pytest.raises(BadConfiguration, match="--authenticate_agents") as refusal:
        Service("master", ("--ip=10.0.0.1",)).check_names()
    assert "install secrets" in refusal.value.remedy
    with pytest.raises(BadConfiguration, match=r"--credential=…"):
        Service("agent", ()).check_names()
    Service("master", ("--ip=127.0.0.1",)).check_names()
    Service("master", ("--ip=10.0.0.1", *NAMES)).check_names()
    with pytest.raises(BadConfiguration, match="authenticate_agents"):
        Service("master", ("--ip=10.0.0.1", *NAMES, "--no-authenticate_agents")).check_names()


def test_a_firewall_is_told_where_others_come_from() -> None:
    assert not list(Service("master", ("--ip=127.0.0.1",)).firewall())
    told = "\n".join(Service("master", ("--ip=10.0.0.1", "--port=5060")).firewall())
    assert "tcp dport 5060" in told
    assert "no TLS" in told


@pytest.mark.parametrize("port", ["0", "65536", "x", ""])
def test_mesos_port_that_is_invalid_is_named(port: str) -> None:
    with pytest.raises(BadConfiguration, match="--port="):
        _ = Service("master", (f"--port={port}",)).port


def test_mesos_own_programs_run_with_the_same_words(tmp_path: Path) -> None:
    ran = []
    service = Service("agent", ("--ip=127.0.0.1", "--master=m:5050"), tmp_path)
    with pytest.raises(Unavailable, match="mesos-agent is not an executable program"):
        service.become(lambda path, argv: ran.append((path, argv)))
    binary = tmp_path / "mesos-agent"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    service.become(lambda path, argv: ran.append((path, argv)))
    assert ran == [(str(binary), [str(binary), "--ip=127.0.0.1", "--master=m:5050"])]


def test_helpers_that_root_runs_are_not_put_where_others_write(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    with pytest.raises(BadConfiguration, match="other users may change"):
        Service("agent", ("--ip=127.0.0.1", f"--work_dir={work}")).command()
    assert not list(work.iterdir())


def test_a_check_says_what_would_fail(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = (
            "--ip=127.0.0.1", f"--port={taken.getsockname()[1]}", f"--work_dir={tmp_path}",
            f"--zk=zk://127.0.0.1:{taken.getsockname()[1]},127.0.0.1:1,127.0.0.1:1/mesos", "--quorum=1",
        )  # fmt: skip
        said = {each.check: each for each in diagnose(Service("master", flags))}
    assert (said["names"].level, said["work_dir"].level) == (Level.OK, Level.OK)
    assert said["port"].level is Level.FAIL
    assert "Address already in use" in said["port"].text
    assert said["zookeeper"].level is Level.FAIL
    assert "1 of 3 servers answer" in said["zookeeper"].text


def test_check_command_fails_with_its_check(tmp_path: Path) -> None:
    words = ["mesos", "check", "agent", "--ip=127.0.0.1", f"--work_dir={tmp_path}", "--master=127.0.0.1:1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1, done.output
    assert "FAIL  master" in done.output
    assert "OK    work_dir" in done.output


@pytest.mark.parametrize("named", [False, True], ids=["not named", "named"])
@pytest.mark.parametrize("kind", ["master", "agent"])
def test_mesos_own_program_on_the_path_is_not_run_unless_its_directory_is_named(
    kind: str, named: bool, tmp_path: Path
) -> None:
    """Who may write to a directory of PATH does not decide what runs as root."""
    program, ran = tmp_path / f"mesos-{kind}", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\necho $0 $@ > {ran}\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MESOS_GPU_CACHE": str(tmp_path)}
    (tmp_path / fetch.LIBRARY).touch()  # this package's Mesos is damaged, and does not start
    words = [sys.executable, "-m", "mesos_gpu", "mesos", kind]
    flags = ["--ip=127.0.0.1", f"--work_dir={tmp_path / 'work'}", "--no_such_flag=1"]
    words += ["--mesos-binaries", str(tmp_path)] if named else []
    done = subprocess.run([*words, *flags], env=environment, capture_output=True, text=True, timeout=60)
    if not named:
        assert done.returncode != 0
        assert f"{program} is not used" in done.stderr
        assert f"--mesos-binaries {tmp_path} selects it" in done.stderr
        assert not ran.exists()
        return
    assert (done.returncode, "is not used" in done.stderr) == (0, False), done.stderr
    assert ran.read_text().split() == [str(program), *flags]
