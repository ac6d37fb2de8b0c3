"""The table of commands: each command has a row, and is for the callers of its row."""

from collections.abc import Iterator

import click
import pytest

from mesos_gpu.cli import COMMANDS as TOP
from mesos_gpu.cli import main
from mesos_gpu.cli.reference import root_context
from tests.contract.access.commands import COMMANDS, LOCAL, Command
from tests.contract.access.scene import CALLERS, Scene
from tests.contract.access.test_table import is_refused
from tests.contract.cli.cli_rig import call


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("commands"))
    yield scene
    scene.close()


def leaves(command: click.Command, words: str) -> list[str]:
    """The names of the commands that do something: those of a group, and it only if it does so alone."""
    if not isinstance(command, click.Group):
        return [words]
    context = click.Context(command, parent=root_context())
    alone = [words] if command.invoke_without_command else []
    inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return alone + [
        leaf for name, each in inner.items() if each for leaf in leaves(each, f"{words} {name}".strip())
    ]


def worst(scene: Scene, command: Command, name: str | None) -> tuple[int, int, str]:
    """The worst answer that somebody's command gets, its exit code, and what is printed."""
    words = command.words(scene)
    scene.seen.clear()
    with scene.turn_of(name):
        result = call(*command.name.split(), *words)
    assert scene.seen, f"{command.name} asked nothing: {result.output}"
    assert "Usage:" not in result.output
    return max(scene.seen), result.exit_code, result.output


@pytest.fixture
def asks_the_scene(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands ask the scheduler of the scene."""
    monkeypatch.setenv("MESOS_GPU_URL", scene.server.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(scene.directory))


@pytest.mark.usefixtures("asks_the_scene")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_command_asks_for_no_more_than_the_least_right_of_its_row(scene: Scene, command: Command) -> None:
    """`test_table.py` tries the rights of all callers, by route."""
    least = list(CALLERS)[command.whom.index("x")]
    status, _, output = scene.as_each(lambda name: worst(scene, command, name), [least])[least]
    assert status != 500, output
    admins = status
    if status in (404, 422):  # the caller may not know of it, or it is not there
        admins, _, _ = scene.as_each(lambda name: worst(scene, command, name), ["admin"])["admin"]
    assert not is_refused(status, admins), output


@pytest.mark.long
@pytest.mark.usefixtures("asks_the_scene")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_command_is_for_the_callers_of_its_row(scene: Scene, command: Command) -> None:
    got = scene.as_each(lambda name: worst(scene, command, name))
    assert all(status != 500 for status, *_ in got.values()), got
    admins, admins_code, _ = got["admin"]
    assert admins not in (401, 403), got
    is_so = "".join(
        "-" if is_refused(status, admins) or code != admins_code else "x" for status, code, _ in got.values()
    )
    assert is_so == command.whom, got


def test_commands_have_one_row_each(scene: Scene) -> None:
    context = root_context()
    known = {name: main.get_command(context, name) for name in TOP}
    there = {leaf for name, each in known.items() if each for leaf in leaves(each, name)}
    rows = [*(command.name for command in COMMANDS), *LOCAL]
    assert sorted(rows) == sorted(set(rows)), "a row stands there twice"
    assert there - set(rows) == set(), "these have no row in tests/contract/access/commands.py"
    assert set(rows) - there == set(), "these are not there any more"
