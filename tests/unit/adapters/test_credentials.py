"""Credentials for Mesos: read from a file that only its owner can read, sent to the agent, never to a task."""

import base64
from pathlib import Path

import pytest
from click.testing import CliRunner

from isolator.agent.agent_api import Settings
from isolator.runs.environment import image_environment, task_environment
from mesos_gpu.adapters.credentials import VARIABLE, read
from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.tasks.assignment import Assignment

AGENT = {"MESOS_AGENT_ENDPOINT": "a:1", "MESOS_FRAMEWORK_ID": "f", "MESOS_EXECUTOR_ID": "e"}


def file_of(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "credentials"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("text", ['{"principal": "gpu", "secret": "s3"}', "gpu s3", "gpu s3\n"])
def test_mesos_credentials_are_read_in_both_forms(tmp_path: Path, text: str) -> None:
    credential = read(file_of(tmp_path, text))
    assert credential.header == "Basic " + base64.b64encode(b"gpu:s3").decode()
    assert "s3" not in repr(credential)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("gpu s3", 0o640, "mode 0640"),
        ("gpu s3", 0o604, "mode 0604"),
        ("gpu", 0o600, "no principal and secret"),
        ("", 0o600, "no principal and secret"),
        ('{"principal": "gpu"}', 0o600, "no principal and secret"),
        ('{"principal": "g:pu", "secret": "s"}', 0o600, "no principal and secret"),
        ("[" * 100_000, 0o600, "no principal and secret"),
    ],
)
def test_mesos_credentials_that_are_open_or_malformed_are_not_used(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    with pytest.raises(BadConfiguration, match=said) as raised:
        read(file_of(tmp_path, text, mode))
    assert raised.value.remedy
    assert "s3" not in str(raised.value)


def test_mesos_credentials_link_is_not_followed(tmp_path: Path) -> None:
    """A user who may write the link would choose the credentials."""
    link = tmp_path / "link"
    link.symlink_to(file_of(tmp_path, "gpu s3"))
    with pytest.raises(BadConfiguration, match="symbolic link"):
        read(link)


def test_mesos_credentials_of_an_executor_follow_its_token(tmp_path: Path) -> None:
    token = {**AGENT, "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t"}
    known = {**token, VARIABLE: str(file_of(tmp_path, "gpu s3"))}
    bearer, basic = {"Authorization": "Bearer t"}, {"Authorization": read(tmp_path / "credentials").header}
    assert Settings.from_environment(AGENT).proofs() == ({},)
    assert Settings.from_environment(token).proofs() == (bearer,)
    assert Settings.from_environment(known).proofs() == (bearer, basic)


@pytest.fixture(scope="module")
def _scheduler() -> None:
    """Import the scheduler, which takes longer than the test."""
    import mesos_gpu.scheduler.__main__  # noqa: F401


@pytest.mark.usefixtures("_scheduler")
def test_mesos_credentials_file_that_is_missing_stops_the_scheduler(tmp_path: Path) -> None:
    words = ["scheduler", "--master", "m:1", "--state", str(tmp_path / "s"), "--port", "0"]
    done = CliRunner().invoke(main, [*words, "--mesos-credentials", str(tmp_path / "none")])
    assert done.exit_code == BadConfiguration.exit_code
    assert str(tmp_path / "none") in done.stderr


def test_mesos_credentials_precede_the_token_at_the_operator_api(tmp_path: Path) -> None:
    token = {**AGENT, "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t"}
    assert Settings.from_environment(AGENT).authorization() == {}
    assert Settings.from_environment(token).authorization() == {"Authorization": "Bearer t"}
    named = Settings.from_environment({**token, VARIABLE: str(file_of(tmp_path, "gpu s3"))})
    assert named.authorization() == {"Authorization": read(tmp_path / "credentials").header}


def test_mesos_credentials_are_hidden_from_tasks() -> None:
    own = {**AGENT, VARIABLE: "/etc/agent.credentials", "MESOS_DIRECTORY": "/sandbox"}
    for made in (
        task_environment(own, "t", Assignment("j", 1), {}),
        image_environment(own, "t", Assignment("j", 1)),
    ):
        assert VARIABLE not in made
