"""The options that every list has, and what was asked for by them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import click
from click.shell_completion import CompletionItem

from mesos_gpu.cli.lists.columns import Listing, R, T
from mesos_gpu.wire.listing.filters import By, passes

_F = Callable[..., Any]
V = TypeVar("V")
_FILTER: Final = "by_"  # of a parameter's name


class Form(StrEnum):
    """How a list is printed."""

    TABLE = "table"  # as the terminal has room
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Asked(Generic[T, R]):
    """What the options of a list ask for."""

    listing: Listing[T, R]
    form: Form
    columns: Sequence[str]
    sort: Sequence[str]
    watch: bool
    filters: Mapping[By, Sequence[str]]

    @property
    def filtered(self) -> bool:
        """Whether some records may be left out."""
        return any(self.filters.values())

    def chosen(self, records: Sequence[T]) -> list[T]:
        """The records that pass the filters, in the order that is asked for."""
        passing = [record for record in records if self._passes(record)] if self.filtered else list(records)
        return self.listing.ordered(passing, self.sort)

    def _passes(self, record: T) -> bool:
        asked = {by: patterns for by, patterns in self.filters.items() if patterns}
        return passes(asked, {by: self.listing.filters[by](record) for by in asked})


class Names(click.ParamType[list[str]]):
    """Names of columns, by commas."""

    name = "names"

    def __init__(self, listing: Listing[Any, Any], *, sorts: bool = False) -> None:
        """`sorts`: a minus may stand in front of each."""
        self._listing, self._sorts = listing, sorts

    def convert(
        self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Split and check them; blanks beside the commas do not matter."""
        if isinstance(value, list):
            return value
        names = [name for part in value.split(",") if (name := part.strip())]
        if not names:
            self.fail(f"{value!r} names no column", param, ctx)
        for name in names:
            try:
                self._listing.col(name.removeprefix("-") if self._sorts else name)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The name after the last comma."""
        before, comma, start = incomplete.rpartition(",")
        names = [col.header.lower().replace(" ", "\\ ") for col in self._listing.columns]
        return [CompletionItem(before + comma + name) for name in names if name.startswith(start.lower())]


#: Each filter's option, what its value is called, and its line.
_FILTERS: Final[Mapping[By, tuple[str, str, str]]] = {
    By.USER: ("--user", "NAME", "Only of that user"),
    By.NAME: ("--name", "NAME", "Only those of that name"),
    By.LABEL: ("--label", "KEY[=VALUE]", "Only with that label"),
    By.QUEUE: ("--queue", "PATH", "Only of that queue and those below it"),
    By.APP: ("--app", "ID", "Only of that app"),
    By.NODE: ("--node", "HOST", "Only on that node; the first part of its name is enough"),
    By.STATE: ("--state", "STATE", "Only in that state"),
}


def filter_options(listing: Listing[Any, Any], kept: str = _FILTER) -> Callable[[_F], _F]:
    """An option for each filter of a list; the function is passed what is asked for by it as PREFIX plus its name."""

    def decorate(function: _F) -> _F:
        for by in reversed(tuple(listing.filters)):
            function = _filter_option(by, listing.states, kept)(function)
        return function

    return decorate


def _filter_option(by: By, states: Sequence[str], kept: str) -> Callable[[_F], _F]:
    flag, metavar, about = _FILTERS[by]
    every = "all of them" if by is By.LABEL else "any of them"
    told: dict[str, Any] = {"metavar": metavar}
    if by is By.STATE and states:
        told = {"type": click.Choice(list(states))}
    pattern = "" if "type" in told else "`*` stands for anything; "
    return click.option(
        flag, kept + by, multiple=True, help=f"{about}; {pattern}may be repeated: {every}.", **told
    )


def filters_of(options: dict[str, Any]) -> dict[By, Sequence[str]]:
    """Take what `filter_options` passed out of a function's options."""
    return {by: options.pop(_FILTER + by) for by in By if _FILTER + by in options}


def list_options(listing: Listing[Any, Any]) -> Callable[[_F], _F]:
    """Give a command the options of a list, and what they ask for as `asked`."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def called(*args: Any, form: str | None, as_json: bool, quiet: bool, **options: Any) -> Any:
            asked = Asked(
                listing,
                _form(form, as_json=as_json, quiet=quiet),
                options.pop("columns") or (),
                options.pop("sort") or (),
                options.pop("watch"),
                filters_of(options),
            )
            _refuse_vain(asked)
            return function(*args, asked=asked, **options)

        made: _F = called
        for option in (*reversed(_format_options(listing)), filter_options(listing)):
            made = option(made)
        return made

    return decorate


def _format_options(listing: Listing[Any, Any]) -> list[Callable[[_F], _F]]:
    names = ", ".join(col.header.lower() for col in listing.columns)
    return [
        click.option(
            "-o",
            "--output",
            "form",
            type=click.Choice([form.value for form in Form]),
            help="wide: every column, and nothing cut; json, yaml: as the REST interface has it; name: IDs alone; "
            "default: table, which has what the terminal has room for.",
        ),
        click.option(
            "--columns", type=Names(listing), metavar="LIST", help=f"Only these, by commas: {names}."
        ),
        click.option(
            "--sort",
            type=Names(listing, sorts=True),
            metavar="LIST",
            help="Sort by these columns, by commas; a minus in front of one: the largest first.",
        ),
        click.option("-w", "--watch", is_flag=True, help="Look again every 2s, and show what changes."),
        click.option("-q", "--quiet", is_flag=True, help="Print IDs alone, as -o name does."),
        click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON document, as the REST interface has it."
        ),
    ]


def _form(form: str | None, *, as_json: bool, quiet: bool) -> Form:
    asked = {Form(form)} if form else set()
    asked |= ({Form.JSON} if as_json else set()) | ({Form.NAME} if quiet else set())
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(sorted(asked))} are asked for at once: leave one of them out")
    return asked.pop() if asked else Form.TABLE


def refuse_of_one(asked: Asked[Any, Any], what: str) -> bool:
    """See that nothing was asked for that only a list has, of a command that tells of one record instead; whether it is
    to be JSON. `what`: the argument that names the record.

    Raises:
        UsageError: Something was.
    """
    form = asked.form not in (Form.TABLE, Form.JSON)
    if form or asked.columns or asked.sort or asked.watch or asked.filtered:
        raise click.UsageError(
            f"of one {what} there is text, or JSON with --json; for a list leave {what} out"
        )
    return asked.form is Form.JSON


def _refuse_vain(asked: Asked[Any, Any]) -> None:
    """What would have no effect."""
    if asked.columns and asked.form not in (Form.TABLE, Form.WIDE):
        raise click.UsageError(f"--columns is for tables, not for {asked.form}")
    if asked.watch and asked.form is Form.YAML:
        raise click.UsageError("--watch prints one document a line: use -o json")
