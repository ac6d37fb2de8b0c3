"""Generator of docs/reference/cli.md: `python -m mesos_gpu.cli.reference > docs/reference/cli.md`."""

import click

from mesos_gpu.cli import COMMANDS, main

_WIDTH = 100
_TIMES = """\
Output has times in UTC, as `2026-12-01T04:25:09Z`. Every option for a time takes this form, too. Tables of events and
of the audit log leave out the year (`12-01T04:25:09Z`). Sentences and narrow columns leave out the date if the time is
less than a day away (`04:25Z`). Times of bookings are in the booking's zone, which `mesos-gpu reserve show` prints.
Ages and durations (`42s`, `3m12s`, `2h05m`, `3d04h`) need no zone. JSON has seconds since the epoch.

An option takes a time without a zone, as `2027-03-01T08:00`, for local time. Options for past times take an age, too:
`2h` is two hours ago."""


def root_context() -> click.Context:
    """Return the context in which commands are inspected without being run.

    A command keeps the help option that it was first asked for, so commands must be inspected below this context, which
    has both names of that option.
    """
    return click.Context(
        main,
        info_name="mesos-gpu",
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )


def reference() -> str:
    """Return the whole page as Markdown."""
    root = root_context()
    made = "Made from the commands by `python -m mesos_gpu.cli.reference`."
    parts = ["# Command line", made, "## Forms of time", _TIMES, "## All commands", _help(root)]
    for name in COMMANDS:
        command = main.get_command(root, name)
        assert command is not None
        parts += _sections(name, command, root)
    return "\n\n".join(parts) + "\n"


def _sections(name: str, command: click.Command, parent: click.Context) -> list[str]:
    with click.Context(
        command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH
    ) as context:
        words = context.command_path.split()[1:]
        parts = [f"{'#' * (len(words) + 1)} {' '.join(words)}", _help(context)]
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                subcommand = command.get_command(context, inner)
                assert subcommand is not None
                parts += _sections(inner, subcommand, context)
        return parts


def _help(context: click.Context) -> str:
    text = "\n".join(line.rstrip() for line in context.get_help().splitlines())
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
