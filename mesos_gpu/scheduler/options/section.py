"""Sections of a command line: dataclasses of option values, and grouped help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeVar

import click

T = TypeVar("T")
Decorators = tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]  # click's decorators


OTHERS: Final = "Other options"


class GroupedOptions(click.Command):
    """A command whose --help lists its options in groups with titles."""

    groups: ClassVar[Mapping[str, Sequence[str]]] = {}  # longest flags of options, by title

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group, and then the options that belong to no group."""
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
    """Return the flags of options as --help shows them, in order."""
    params = click.command()(with_options(options)(lambda **_: None)).params
    return [param.opts[-1] for param in params]


@dataclass(frozen=True, slots=True)
class Section:
    """A group of options whose values go into one dataclass.

    Attributes:
        kind: Frozen dataclass; each field is the parameter of one option.
        options: Decorators of these options.
    """

    kind: type[Any]
    options: Decorators

    def take(self, given: dict[str, Any]) -> Any:
        """Remove the values of this section from `given`, and return them as `kind`."""
        return self.kind(**{field.name: given.pop(field.name) for field in fields(self.kind)})


def with_options(*lists: Decorators) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that adds options to a command, in the order of its help."""

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        for option in reversed([option for options in lists for option in options]):
            command = option(command)
        return command

    return decorate


def taken(sections: Mapping[str, Section], given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all sections by name, together with the rest of `given`, from which they are removed."""
    values = {name: section.take(given) for name, section in sections.items()}
    return {**given, **values}
