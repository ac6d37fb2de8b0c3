"""Groups of commands that are imported when they are called, not before."""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem


class Lines(click.Group):
    """A group whose --help has the whole first sentence of each command; click cuts it after 45 characters or so."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1000)) for name, each in commands.items() if each]
            )


class Table(click.Group):
    """A group after a table: a command's name to its module and its one line in --help.

    A module is named as MODULE, if its function has the command's name, or as MODULE:FUNCTION. The line stands
    in the table so that --help imports no command; a test holds it equal to the docstring's.
    """

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    #: What commands are about, by the name of the first one that is listed below that heading.
    headings: ClassVar[Mapping[str, str]] = {}
    words: ClassVar[Mapping[str, str]] = {}  # what others call a command, to what it is called here

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None: there is none of that name."""
        if cmd_name not in self.table:
            return None
        module, _, function = self.table[cmd_name][0].partition(":")
        command = getattr(import_module(module), function or cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing them, and options."""
        named = [
            CompletionItem(name, help=line)
            for name, (_, line) in self.table.items()
            if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words begin with; a mistyped one is answered with the nearest names."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as err:
            if here := self.words.get(err.command_name):
                raise NoSuchCommand(
                    err.command_name, f"No such command {err.command_name!r}. Here it is: {here}", ctx=ctx
                ) from None
            raise NoSuchCommand(err.command_name, possibilities=self.table, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands below their headings without importing them."""
        width = max(map(len, self.table))
        sections: list[tuple[str, list[tuple[str, str]]]] = []
        for name, (_, line) in self.table.items():
            if name in self.headings or not sections:
                sections.append((self.headings.get(name, "Commands"), []))
            sections[-1][1].append((name.ljust(width), line))
        for title, records in sections:
            with formatter.section(title):
                formatter.write_dl(records)
