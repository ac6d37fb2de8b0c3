"""Groups of commands that are imported only when they are called."""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem


class Lines(click.Group):
    """A group whose --help shows the whole first sentence of each command; click cuts it after about 45 characters."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(1000)) for name, command in commands.items() if command]
            )


class Table(click.Group):
    """A group defined by a table from command names to modules and lines of --help.

    A module is given as MODULE, if its function has the command's name, or as MODULE:FUNCTION. The line is repeated in
    the table so that --help imports no command; a test compares it with the docstring.
    """

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    #: Headings, by the name of the first command below each.
    headings: ClassVar[Mapping[str, str]] = {}
    words: ClassVar[Mapping[str, str]] = {}  # words of other systems, to the command here

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if there is no command of this name."""
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
        """Resolve a command; an unknown name is answered with the nearest names, or with the name used here."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as err:
            if here := self.words.get(err.command_name):
                raise NoSuchCommand(
                    err.command_name, f"No such command {err.command_name!r}. Use instead: {here}", ctx=ctx
                ) from None
            raise NoSuchCommand(err.command_name, possibilities=self.table, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands below their headings without importing them."""
        width = max(map(len, self.table))
        sections: list[tuple[str, list[tuple[str, str]]]] = []
        for name, (_, line) in self.table.items():
            if name in self.headings or not sections:
                sections.append((self.headings.get(name, "Commands"), []))
            sections[-1][1].append((name.ljust(width), line))
        for title, records in sections:
            with formatter.section(title):
                formatter.write_dl(records)
