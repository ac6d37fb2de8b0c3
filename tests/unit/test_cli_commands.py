"""Every command as a whole: help, reference page, what it imports."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

import mesos_gpu
from mesos_gpu.cli import COMMANDS, main
from mesos_gpu.cli.reference import reference

ROOT = Path(mesos_gpu.__file__).parents[1]
# These print no data: a job's own bytes, a script for a shell, or what a service does while it runs.
WITHOUT_JSON = {"logs", "completion", "up", "down", "demo", "scheduler"}


def _command(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    command = _command(name)
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1], (
        "the table and the docstring must agree"
    )
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, param.name


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_JSON))
def test_every_command_that_prints_data_has_json(name: str) -> None:
    commands = [_command(name)]
    if isinstance(commands[0], click.Group):  # `bench launch`: its commands print, not it
        commands = list(commands[0].commands.values())
    for command in commands:
        assert any("--json" in param.opts for param in command.params), command.name


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert page == reference(), "run: python -m mesos_gpu.cli.reference > docs/reference/cli.md"


def test_help_imports_no_command_and_no_library_that_is_slow() -> None:
    code = (
        "import sys; from mesos_gpu.cli import main; main(['--help'], standalone_mode=False);"
        "slow = {'requests', 'rich', 'yaml', 'msgspec', 'starlette', 'pymesos', 'mesos_gpu.cli.jobs'};"
        "sys.exit(repr(slow & set(sys.modules)) if slow & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=30)
