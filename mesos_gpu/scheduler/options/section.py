"""A section of the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeVar

import click

T = TypeVar("T")
Decorators = tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]  # click's decorators


OTHERS: Final = "Other options"


class GroupedOptions(click.Command):
    """A command whose --help shows its options below titles."""

    groups: ClassVar[Mapping[str, Sequence[str]]] = {}  # titles, and the longest flags of their options

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group, and then the options that are in none."""
        records = {
            option.opts[-1]: record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None
        }
        grouped = {flag for flags in self.groups.values() for flag in flags}
        rest = [flag for flag in records if flag not in grouped]
        for title, flags in (*self.groups.items(), (OTHERS, rest)):
            if shown := [records[flag] for flag in flags if flag in records]:
                with formatter.section(title):
                    formatter.write_dl(shown)


def flags_in(options: Decorators) -> list[str]:
    """Return the flags that options have in --help, in their order."""
    params = click.command()(with_options(options)(lambda **_: None)).params
    return [param.opts[-1] for param in params]


@dataclass(frozen=True, slots=True)
class Section:
    """Options that belong together.

    Attributes:
        kind: A frozen dataclass; each of its fields is the parameter of an option.
        options: Of each of those.
    """

    kind: type[Any]
    options: Decorators

    def take(self, given: dict[str, Any]) -> Any:
        """Make `kind` of what is given for it, and leave the rest."""
        return self.kind(**{each.name: given.pop(each.name) for each in fields(self.kind)})


def with_options(*lists: Decorators) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command options, in the order in which its help has them."""

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        for option in reversed([option for options in lists for option in options]):
            command = option(command)
        return command

    return decorate


def taken(sections: Mapping[str, Section], given: dict[str, Any]) -> dict[str, Any]:
    """All sections' values by their names, beside what is left of `given`."""
    values = {name: section.take(given) for name, section in sections.items()}
    return {**given, **values}
