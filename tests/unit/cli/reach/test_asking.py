"""Commands that end or delete something, and all others: the former ask on a terminal and have --yes."""

import click
import pytest

from mesos_gpu.cli import COMMANDS, main, output
from mesos_gpu.cli.reference import root_context

#: Commands that end running work, or delete or replace what no other command gives back.
DESTROYS = {
    "kill", "tasks unknown kill", "teardown", "down", "restore", "app update", "app scale", "app rollback",
    "app delete", "deployment stop", "service unsplit", "node drain", "gpu drain", "queue drain", "queue apply",
    "queue rollback", "reserve cancel", "access apply", "access rollback", "token revoke", "webhook remove",
    "uploads rm", "storage remove", "volume gc", "mesos quota apply", "mesos reserve apply", "mesos reserve release",
    "cluster apply",
}  # fmt: skip
#: Commands that read, add, change what another command changes back, or write files of their own.
KEEPS = {
    "run", "submit", "ps", "show", "why", "queue", "queue list", "queue show", "queue shares", "queue why",
    "queue diff", "queue versions", "queue hold", "queue resume", "logs", "exec", "uploads list", "attach", "notebook",
    "storage list",
    "port-forward", "cp", "ls", "cat", "wait", "keep", "resize", "status", "top", "gpus", "nodes", "gpu list",
    "gpu health", "gpu undrain", "gpu reset", "node list", "node undrain", "node cdi", "node shim build",
    "node shim check", "tasks unknown list", "tasks unknown adopt", "plan defrag", "volume build", "volume list",
    "volume show", "volume verify", "volume plan", "app list", "app show", "app tasks", "app versions", "app create",
    "app restart", "deployment list", "deployment show", "diff", "service list", "service show", "service split",
    "service shift", "service export", "template list", "template show", "template render", "login", "logout",
    "context list", "context use", "context add", "context remove", "context show", "whoami", "access show",
    "access diff", "access can", "access versions", "access rights", "token create", "token list", "report budget",
    "report fairness", "report idle", "report usage", "report wait", "events", "webhook list", "webhook show",
    "webhook add", "webhook test", "webhook dead", "webhook retry", "webhook versions", "history", "reserve",
    "reserve list", "reserve show", "reserve move", "budget grant", "budget list", "budget set-aside", "budget show",
    "audit", "install executor", "install agent", "install master", "install scheduler", "install secrets", "doctor",
    "cluster plan", "mesos master", "mesos agent", "mesos check", "mesos quota plan", "mesos quota show",
    "mesos reserve plan", "scheduler", "leader", "backup", "upgrade plan", "up", "demo", "simulate inflation",
    "simulate jobs", "simulate tenants", "simulate replay", "help", "completion",
}  # fmt: skip


def commands(name: str) -> dict[str, click.Command]:
    """Return all commands below a name of the top level that do something by themselves, by their words."""
    root, known = root_context(), dict[str, click.Command]()

    def walk(words: str, command: click.Command | None, parent: click.Context) -> None:
        assert command is not None, words
        if not isinstance(command, click.Group) or command.invoke_without_command:
            known[words] = command
        if isinstance(command, click.Group):
            context = click.Context(command, parent=parent)
            for inner in command.list_commands(context):
                walk(f"{words} {inner}", command.get_command(context, inner), context)

    walk(name, main.get_command(root, name), root)
    return known


def test_lists_of_commands_do_not_overlap_and_name_known_commands() -> None:
    assert not DESTROYS & KEEPS
    assert {words.split()[0] for words in DESTROYS | KEEPS} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_destroys_and_has_yes_or_keeps(name: str) -> None:
    known = commands(name)
    listed = {words for words in DESTROYS | KEEPS if words.split()[0] == name}
    assert set(known) == listed, "each command is in exactly one list"
    asks = {
        words
        for words, command in known.items()
        if any({"-y", "--yes"} <= set(param.opts) for param in command.params)
    }
    assert asks == listed & DESTROYS


@pytest.mark.parametrize(
    ("terminal", "yes", "shown", "asked"),
    [
        (True, False, False, True),
        (True, False, True, True),
        (True, True, True, False),
        (False, False, False, False),
        (False, True, True, False),
    ],
)
def test_question_is_asked_on_a_terminal_without_yes(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, yes: bool, shown: bool, asked: bool
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(output, "is_terminal", lambda _stream: terminal)
    monkeypatch.setattr(click, "confirm", lambda text, **_how: questions.append(text))
    output.ask("End it?", yes=yes, shown=shown)
    output.ask("", yes=yes, shown=shown)
    assert questions == ["End it?"] * asked


def test_question_that_cannot_be_asked_needs_yes_if_the_command_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda _stream: False)
    with pytest.raises(click.UsageError, match=r"^End it\? stdin is not a terminal, .*: add --yes$"):
        output.ask(lambda: "End it?", yes=False, shown=True)
    output.ask(lambda: pytest.fail("it is not needed"), yes=False)
