"""Every command as a whole: help, reference page, what it imports."""

import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import mesos_gpu
from mesos_gpu.cli import COMMANDS, FIRST, HEADINGS, WORDS, main
from mesos_gpu.cli.jobs.groups import GROUPS
from mesos_gpu.cli.reference import reference, root_context
from mesos_gpu.cli.table import Table
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.scheduler.options.options import SchedulerCommand
from mesos_gpu.scheduler.options.section import OTHERS

ROOT = Path(mesos_gpu.__file__).parents[1]
# These print no data: a job's own bytes, a script for a shell, or what a service does while it runs; or have --format.
WITHOUT_JSON = {"logs", "completion", "up", "down", "demo", "scheduler", "export", "login", "logout", "help"} | {
    "exec",  # what it prints is the command's own
    "attach",  # what it prints is the job's own
    "notebook",  # it prints a URL
    "port-forward",  # it prints nothing but where it listens
    "cp", "cat",  # a file's bytes
    "add", "use", "remove",  # of contexts
}  # fmt: skip


def _command(name: str) -> click.Command:
    command = main.get_command(root_context(), name)
    assert command is not None
    return command


def _leaves(command: click.Command) -> list[click.Command]:
    """The commands that print: those of a group, not it."""
    if not isinstance(command, click.Group):
        return [command]
    context = click.Context(command, parent=root_context())
    inner = [command.get_command(context, name) for name in command.list_commands(context)]
    return [leaf for subcommand in inner if subcommand is not None for leaf in _leaves(subcommand)]


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "node",
        "volume",
        "template",
        "simulate",
        "plan",
        "app",
        "deployment",
        "service",
        "access",
        "token",
    ],
)
def test_help_lines_of_a_group_are_those_of_its_commands(name: str) -> None:
    group = _command(name)
    assert isinstance(group, Table)
    context = click.Context(group, parent=root_context())
    for inner, (_, line) in group.table.items():
        command = group.get_command(context, inner)
        assert command is not None
        assert (command.name, command.get_short_help_str(limit=200)) == (inner, line)
        assert all(param.help for param in command.params if isinstance(param, click.Option))


def test_help_groups_the_options_of_run_and_leaves_none_out() -> None:
    run = _command("run")
    flags = {param.opts[-1] for param in run.params if isinstance(param, click.Option)}
    grouped = [flag for group in GROUPS.values() for flag in group]
    assert len(grouped) == len(set(grouped))
    assert {field.option.flag for field in FIELDS if field.option is not None} <= set(grouped) <= flags
    text = CliRunner().invoke(main, ["run", "--help"]).stdout
    assert [line.rstrip(":") for line in text.splitlines() if line.rstrip(":") in {*GROUPS, OTHERS}] == [
        *GROUPS, OTHERS,
    ]  # fmt: skip
    assert all(
        text.count(f"\n  {flag} ") + text.count(f", {flag} ") >= 1 for flag in flags if flag != "--upload"
    )


def test_help_groups_every_option_of_the_scheduler_once() -> None:
    flags = {param.opts[-1] for param in _command("scheduler").params if isinstance(param, click.Option)}
    grouped = [flag for group in SchedulerCommand.groups.values() for flag in group]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == flags
    lines = CliRunner().invoke(main, ["scheduler", "--help"]).stdout.splitlines()
    assert [line[:-1] for line in lines if line[:-1] in SchedulerCommand.groups] == [*SchedulerCommand.groups]


@pytest.mark.parametrize("words", [[], ["run"], ["gpu", "drain"], ["app"]])
def test_help_is_a_command_too(words: list[str]) -> None:
    asked, option = (
        CliRunner().invoke(main, each, prog_name="mesos-gpu")
        for each in (["help", *words], [*words, "--help"])
    )
    assert (asked.exit_code, asked.stdout) == (0, option.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["help", "kil"], "No such command 'kil'. Did you mean 'kill'?"),
        (["help", "gpu", "drai"], "Did you mean one of: 'drain', 'undrain'"),
        (["help", "ps", "x"], "mesos-gpu ps has no commands below it: leave out 'x'"),
        (["cancel", "x"], "No such command 'cancel'. Use instead: kill"),
        (["stop"], "Use instead: kill"),
        (["drain", "gpu-7"], "Use instead: node drain, or gpu drain"),
        (["version"], "Use instead: status, or mesos-gpu --version"),
        (["list"], "Use instead: ps"),
        (["squeue", "-u", "ann"], "Use instead: ps, or queue"),
    ],
)
def test_command_of_another_tool_is_answered_with_ours(words: list[str], said: str) -> None:
    got = CliRunner().invoke(main, words, prog_name="mesos-gpu")
    assert (got.exit_code, said in got.stderr) == (2, True), got.stderr


def test_commands_of_other_tools_name_existing_commands() -> None:
    assert not WORDS.keys() & COMMANDS.keys()
    for here in WORDS.values():
        assert any(word in COMMANDS for word in here.replace(",", "").split()), here


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_exists(name: str) -> None:
    command = _command(name)
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1], (
        "the table and the docstring must agree"
    )
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, param.name


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_JSON))
def test_json_option_is_on_every_command_that_prints_data(name: str) -> None:
    for command in _leaves(_command(name)):
        has = any("--json" in param.opts for param in command.params)
        has |= bool(command.context_settings.get("ignore_unknown_options"))  # it becomes another program
        assert has or command.name in WITHOUT_JSON, command.name


def test_help_headings_begin_at_a_command() -> None:
    assert HEADINGS.keys() <= COMMANDS.keys()
    lines = CliRunner().invoke(main, ["--help"]).stdout.splitlines()
    assert [line[:-1] for line in lines if line[:-1] in HEADINGS.values()] == list(HEADINGS.values())


def test_program_without_a_command_prints_twelve_of_them_in_groups_on_stdout() -> None:
    for words in ([], ["--url", "http://127.0.0.1:9"]):
        got = CliRunner().invoke(main, words, prog_name="mesos-gpu")
        assert (got.exit_code, got.stderr) == (0, "")
        lines = got.stdout.splitlines()
        assert [line[:-1] for line in lines if line[:-1] in FIRST] == list(FIRST)
        shown = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in COMMANDS]
        assert shown == [name for names in FIRST.values() for name in names]
        assert len(shown) == 12
        assert f"all {len(COMMANDS)} commands" in got.stdout
        assert max(map(len, lines)) <= 80


def test_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert page == reference(), "run: python -m mesos_gpu.cli.reference > docs/reference/cli.md"


@pytest.mark.parametrize("module", ["click", "mesos_gpu.cli", "mesos_gpu.cli.jobs.listing", "requests"])
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(module: str) -> None:
    code = (
        "import signal, sys\n"
        "from mesos_gpu.start import main\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        name == {module!r} and signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['mesos-gpu', '--url', 'http://127.0.0.1:9', 'ps']\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr.strip()) == ("", "")
    assert done.returncode in (-signal.SIGINT, 130)
