"""The command of OpenSSH's client: what no setting of a file can change, and how names get through."""

import shlex
from pathlib import Path

import pytest

from mesos_gpu.adapters.ssh.client import Ssh


def options(command: list[str]) -> dict[str, str]:
    """Options as ssh takes them: of one that is given twice, the first."""
    given = [command[i + 1].partition("=") for i, word in enumerate(command) if word == "-o"]
    made: dict[str, str] = {}
    for name, _, value in given:
        made.setdefault(name, value)
    return made


@pytest.mark.parametrize("name", ["StrictHostKeyChecking", "BatchMode", "PermitLocalCommand", "ForwardAgent"])
def test_no_option_turns_a_check_off(name: str) -> None:
    plain = options(Ssh("h").command("true"))
    assert options(Ssh("h", options={name: "maybe"}).command("true")) == plain
    assert (plain["StrictHostKeyChecking"], plain["BatchMode"]) == ("yes", "yes")


def test_a_host_is_no_option_and_words_stay_words() -> None:
    command = Ssh("-oProxyCommand=x", port=2222).command('echo "$1"', ["a b", "$(id)"])
    assert command[-3:-1] == ["--", "-oProxyCommand=x"]
    assert shlex.split(command[-1]) == ["sh", "-c", 'echo "$1"', "sh", "a b", "$(id)"]
    assert command[command.index("-p") + 1] == "2222"


def test_ssh_user_becomes_root_without_a_prompt() -> None:
    command = Ssh("h", user="ops").command("true")
    assert shlex.split(command[-1])[:5] == ["sudo", "-n", "--", "sh", "-c"]
    assert command[command.index("-l") + 1] == "ops"


def test_files_that_are_named_are_the_only_ones() -> None:
    given = options(Ssh("h", identity=Path("/a b/id"), known_hosts=Path("/100%/known")).command("true"))
    assert given["UserKnownHostsFile"] == '"/100%%/known"'
    assert given["GlobalKnownHostsFile"] == "none"
    assert (given["IdentityFile"], given["IdentitiesOnly"]) == ('"/a b/id"', "yes")
