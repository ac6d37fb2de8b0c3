"""What `mesos-gpu install` prints for hosts: systemd reads it, and it says what it must."""

import json
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.install import agent, scheduler
from mesos_gpu.install.files import HostFile, variables, written
from mesos_gpu.scheduler.__main__ import scheduler as scheduler_command
from tests.documents.blocks import blocks

SCRIPTS = Path(__file__).parents[3] / "scripts/debian"
ARCHIVE = "https://files/x.pyz#sha256=" + "a" * 64


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["install", *words])


def host(cgroups: str = "v1", **more: object) -> agent.AgentHost:
    return agent.AgentHost("m:5050", 8, cgroups, **more)  # type: ignore[arg-type]


def read_variables(files: list[HostFile]) -> dict[str, str]:
    (file,) = [each for each in files if each.path.endswith(".env")]
    return dict(word.split("=", 1) for word in shlex.split(file.text))


@pytest.mark.parametrize("cgroups", agent.CGROUPS)
def test_the_agents_flags_leave_cards_to_us_and_let_nobody_in(cgroups: str) -> None:
    given = read_variables(agent.files(host(cgroups)))
    assert "gpu/nvidia" not in given["MESOS_ISOLATION"]
    assert given["MESOS_RESOURCES"] == "gpus:8;ports:[31000-32000]"
    assert given["MESOS_AUTHENTICATE_HTTP_READWRITE"] == given["MESOS_AUTHENTICATE_HTTP_READONLY"] == "true"
    own = json.loads(given["MESOS_EXECUTOR_ENVIRONMENT_VARIABLES"])
    assert own["MESOS_GPU_ISOLATION"] == {"v1": "cgroup1", "v2": "cgroup2"}[cgroups]
    assert own["MESOS_GPU_AGENT_CREDENTIALS"].startswith(agent.SECRETS)
    assert ("cgroups/" in given["MESOS_ISOLATION"]) is (cgroups == "v1"), "Mesos 1.11 knows version 1 only"
    open_to_all = read_variables(agent.files(host(cgroups, authentication=False)))
    assert not [name for name in open_to_all if "AUTHENTICATE" in name or "CREDENTIAL" in name]


def test_images_run_by_mesos_have_all_isolators_that_the_page_of_hosts_names() -> None:
    guide = Path(agent.__file__).parents[2].joinpath("docs/hosts.md").read_text()
    wanted = re.search(r"`--isolation` also needs `([^`]+)`", guide)
    assert wanted is not None
    assert set(wanted[1].split(",")) <= set(agent.flags(host())["isolation"].split(","))


def test_settings_of_secrets_are_not_for_everybody_to_read() -> None:
    for files in (agent.files(host()), scheduler.files("m:5050", "/opt/x/mesos-gpu", ARCHIVE)):
        assert {each.mode for each in files if each.path.endswith(".env")} == {0o600}
    assert f"d {agent.SECRETS} 0700 root root" in next(
        f.text for f in agent.files(host()) if "tmpfiles" in f.path
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_services(tmp_path: Path) -> None:
    files = [*agent.files(host(binary="/bin/true")), *scheduler.files("m:5050", "/bin/true", None)]
    units = [str(path) for path in written(files, tmp_path) if path.suffix == ".service"]
    assert len(units) == 2
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "mesos-gpu" in line]
    assert (done.returncode, ours) == (0, [])


def test_written_files_have_their_modes_and_replace_nothing(tmp_path: Path) -> None:
    done = call("agent", "--master", "m:5050", "--gpus", "8", "--cgroups", "v2", "--into", str(tmp_path))
    assert done.exit_code == 0, done.output
    settings = tmp_path / "etc/mesos-gpu/agent.env"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    settings.write_text("mine")
    again = call("agent", "--master", "m:5050", "--gpus", "8", "--cgroups", "v2", "--into", str(tmp_path))
    assert again.exit_code == 78
    assert "agent.env" in again.output
    assert settings.read_text() == "mine"


def test_install_prints_all_files_and_the_steps() -> None:
    text = call("scheduler", "--master", "zk://z:2181/mesos", "--executor-archive", ARCHIVE).output
    for file in scheduler.files("zk://z:2181/mesos", "/opt/mesos-gpu/bin/mesos-gpu", ARCHIVE):
        assert f"# {file.path}  ({file.mode:04o} root:root)\n{file.text}" in text
    assert text.splitlines()[-len(scheduler.STEPS) :] == list(scheduler.STEPS)
    told = json.loads(call("scheduler", "--master", "m:5050", "--json").output)
    assert {each["path"] for each in told["files"]} >= {"/etc/mesos-gpu/scheduler.env"}


@pytest.mark.parametrize("words", [["scheduler"], ["agent", "--gpus", "8", "--cgroups", "v1"]])
def test_settings_alone_are_what_a_service_of_a_package_lacks(words: list[str], tmp_path: Path) -> None:
    command = [*words, "--master", "m:5050", "--settings"]
    said = call(*command)
    assert said.exit_code == 0, said.output
    assert call(*command, "--into", str(tmp_path)).exit_code == 0
    (made,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert made.relative_to(tmp_path) == Path(f"etc/mesos-gpu/{words[0]}.env")
    assert made.read_text() == said.output


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.p*")), ids=lambda path: path.name)
def test_package_scripts_end_at_their_first_failure(script: Path) -> None:
    text = script.read_text()
    assert text.startswith("#!/bin/sh\n# ")
    assert "\nset -e\n" in text
    subprocess.run(["sh", "-n", script], check=True)


@pytest.mark.parametrize("tokens", [False, True])
def test_every_file_that_flags_name_is_written_for_its_owner_alone(tokens: bool, tmp_path: Path) -> None:
    made = tmp_path / "secrets"
    done = call("secrets", str(made), *(["--executor-tokens"] if tokens else []))
    assert done.exit_code == 0, done.output
    names = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert {stat.S_IMODE((made / name).stat().st_mode) for name in names} == {0o600}
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    wanted = re.findall(rf"{agent.SECRETS}/([\w.-]+)", json.dumps(agent.flags(host(tokens=tokens))))
    of_master = re.findall(rf"{agent.SECRETS}/([\w.-]+)", (made / "master/master.env").read_text())
    assert names - {"master/master.env", "scheduler/mesos-credentials.json", "operator/operator.json"} == {
        *(f"agent/{name}" for name in wanted),
        *(f"master/{name}" for name in of_master),
    }
    lists = json.loads((made / "agent/agent-acls.json").read_text())
    assert lists["permissive"] is False
    assert ("launch_nested_containers_as_user" in lists) is not tokens
    words = {json.loads((made / name).read_text())["secret"] for name in names if json_of_one(name)}
    assert len(words) == 4
    assert not [word for word in words if word in done.output]
    before = (made / "agent/executors.json").read_text()
    assert call("secrets", str(made)).exit_code == 78, "what is in use is not replaced"
    assert (made / "agent/executors.json").read_text() == before


def test_install_page_commands_write_their_files(tmp_path: Path) -> None:
    commands = [
        line
        for block in blocks("docs/install.md")
        for line in block.text.replace("\\\n", " ").splitlines()
        if line.startswith("mesos-gpu install")
    ]
    assert len(commands) == 4
    said = {}
    for line in commands:
        words = shlex.split(re.split(" [|>] ", line)[0], comments=True)[2:]
        elsewhere = {"./cluster-secrets": str(tmp_path / "secrets"), "/": str(tmp_path / "root")}
        done = call(*(elsewhere.get(word, word) for word in words))
        assert done.exit_code == 0, done.output
        said[words[0]] = done.output
    assert "\nMESOS_GPU_MASTER='zk://" in f"\n{said['scheduler']}"
    assert "\nMESOS_RESOURCES='gpus:8;" in said["agent"]
    # The scheduler takes the options that the page gives it: none is unknown, and each value is one of its own.
    settings = dict(word.split("=", 1) for word in shlex.split(said["scheduler"]))
    options = shlex.split(settings[scheduler.OPTIONS])
    context = scheduler_command.make_context(
        "scheduler", [*options, "--master", "m:5050"], resilient_parsing=True
    )
    assert (context.params["host"], context.args) == ("10.0.0.5", [])


def json_of_one(name: str) -> bool:
    """Whether it is the proof of one name."""
    return Path(name).name in (
        "agent-of-master.json",
        "executors.json",
        "mesos-credentials.json",
        "operator.json",
    )


def test_options_of_the_scheduler_are_words_of_its_service() -> None:
    done = call("scheduler", "--master", "m:5050", "--options", "--host 10.0.0.5 --auth token")
    assert "\nMESOS_GPU_SCHEDULER_OPTIONS='--host 10.0.0.5 --auth token'\n" in done.output
    (command,) = [line for line in done.output.splitlines() if line.startswith("ExecStart=")]
    assert command.endswith(" $MESOS_GPU_SCHEDULER_OPTIONS")


@pytest.mark.parametrize("setting", ["PATH=/evil", "MESOS_GPU_X", "MESOS_GPU_ X=1", "=1"])
def test_only_settings_of_ours_are_set(setting: str) -> None:
    done = call("agent", "--master", "m:5050", "--gpus", "1", "--set", setting)
    assert done.exit_code == 2
    assert "MESOS_GPU_…=VALUE" in done.output


@pytest.mark.parametrize("value", ["it's", "a\nB=c"])
def test_a_value_cannot_become_two(value: str) -> None:
    with pytest.raises(BadConfiguration, match="quote or a line break"):
        variables({"NAME": value})
