"""docs/reference/cli.md from the commands: `python -m mesos_gpu.cli.reference > docs/reference/cli.md`."""

import click

from mesos_gpu.cli import COMMANDS, main

_WIDTH = 100


def root_context() -> click.Context:
    """Where the commands are looked at without being run.

    A command keeps the help option that it was first asked for: who looks at one does it below this context, which
    knows both names of that option.
    """
    return click.Context(
        main,
        info_name="mesos-gpu",
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )


def reference() -> str:
    """The whole page, as Markdown."""
    root = root_context()
    parts = ["# Command line", "Made from the commands by `python -m mesos_gpu.cli.reference`.", _help(root)]
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
