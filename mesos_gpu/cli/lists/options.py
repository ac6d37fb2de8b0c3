"""Options that all lists have, and their values."""

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
_FILTER: Final = "by_"  # prefix of parameter names


class Form(StrEnum):
    """Output format of a list."""

    TABLE = "table"  # fitted to the terminal
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Asked(Generic[T, R]):
    """Values of a list's options."""

    listing: Listing[T, R]
    form: Form
    columns: Sequence[str]
    sort: Sequence[str]
    watch: bool
    filters: Mapping[By, Sequence[str]]

    @property
    def filtered(self) -> bool:
        """Whether any filter is set."""
        return any(self.filters.values())

    def chosen(self, records: Sequence[T]) -> list[T]:
        """Return the records that pass the filters, sorted as requested."""
        passing = [record for record in records if self._passes(record)] if self.filtered else list(records)
        return self.listing.ordered(passing, self.sort)

    def _passes(self, record: T) -> bool:
        asked = {by: patterns for by, patterns in self.filters.items() if patterns}
        return passes(asked, {by: self.listing.filters[by](record) for by in asked})


class Names(click.ParamType[list[str]]):
    """Comma-separated names of columns; with `sorts` each may have a leading minus."""

    name = "names"

    def __init__(self, listing: Listing[Any, Any], *, sorts: bool = False) -> None:
        self._listing, self._sorts = listing, sorts

    def convert(
        self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """Split and check the names; blanks beside commas are ignored."""
        if isinstance(value, list):
            return value
        names = [name for part in value.split(",") if (name := part.strip())]
        if not names:
            self.fail(f"{value!r} contains no column name", param, ctx)
        for name in names:
            try:
                self._listing.col(name.removeprefix("-") if self._sorts else name)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the name after the last comma."""
        before, comma, start = incomplete.rpartition(",")
        names = [col.header.lower().replace(" ", "\\ ") for col in self._listing.columns]
        return [CompletionItem(before + comma + name) for name in names if name.startswith(start.lower())]


#: Flag, metavar and help of each filter's option.
_FILTERS: Final[Mapping[By, tuple[str, str, str]]] = {
    By.USER: ("--user", "NAME", "Only of this user"),
    By.NAME: ("--name", "NAME", "Only with this name"),
    By.LABEL: ("--label", "KEY[=VALUE]", "Only with this label"),
    By.QUEUE: ("--queue", "PATH", "Only in this queue and the queues below it"),
    By.APP: ("--app", "ID", "Only of this app"),
    By.NODE: ("--node", "HOST", "Only on this node; the first part of its name is enough"),
    By.STATE: ("--state", "STATE", "Only in this state"),
}


def filter_options(listing: Listing[Any, Any], kept: str = _FILTER) -> Callable[[_F], _F]:
    """Return a decorator that adds an option for each filter of a list; parameters are named prefix plus filter."""

    def decorate(function: _F) -> _F:
        for by in reversed(tuple(listing.filters)):
            function = _filter_option(by, listing.states, kept)(function)
        return function

    return decorate


def _filter_option(by: By, states: Sequence[str], kept: str) -> Callable[[_F], _F]:
    flag, metavar, about = _FILTERS[by]
    every = "all must match" if by is By.LABEL else "any may match"
    arguments: dict[str, Any] = {"metavar": metavar}
    if by is By.STATE and states:
        arguments = {"type": click.Choice(list(states))}
    pattern = "" if "type" in arguments else "`*` matches anything; "
    return click.option(
        flag, kept + by, multiple=True, help=f"{about}; {pattern}may be repeated: {every}.", **arguments
    )


def filters_of(options: dict[str, Any]) -> dict[By, Sequence[str]]:
    """Remove the values of `filter_options` from a function's options, and return them by filter."""
    return {by: options.pop(_FILTER + by) for by in By if _FILTER + by in options}


def list_options(listing: Listing[Any, Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds a list's options to a command and passes their values as `asked`."""

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

        decorated: _F = called
        for option in (*reversed(_format_options(listing)), filter_options(listing)):
            decorated = option(decorated)
        return decorated

    return decorate


def _format_options(listing: Listing[Any, Any]) -> list[Callable[[_F], _F]]:
    """Return the options for format, columns, sort order and --watch."""
    names = ", ".join(col.header.lower() for col in listing.columns)
    return [
        click.option(
            "-o",
            "--output",
            "form",
            type=click.Choice([form.value for form in Form]),
            help="wide: all columns, nothing cut; json, yaml: in the form of the REST interface; name: only IDs; "
            "default: table, fitted to the terminal.",
        ),
        click.option(
            "--columns",
            type=Names(listing),
            metavar="LIST",
            help=f"Columns to show, separated by commas: {names}.",
        ),
        click.option(
            "--sort",
            type=Names(listing, sorts=True),
            metavar="LIST",
            help="Columns to sort by, separated by commas; a leading minus sorts the largest first.",
        ),
        click.option("-w", "--watch", is_flag=True, help="Refresh every 2s, and show changes."),
        click.option("-q", "--quiet", is_flag=True, help="Print only IDs, like -o name."),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print one JSON document, in the form of the REST interface.",
        ),
    ]


def _form(form: str | None, *, as_json: bool, quiet: bool) -> Form:
    asked = {Form(form)} if form else set()
    asked |= ({Form.JSON} if as_json else set()) | ({Form.NAME} if quiet else set())
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(sorted(asked))} exclude each other: give one format")
    return asked.pop() if asked else Form.TABLE


def refuse_of_one(asked: Asked[Any, Any], what: str) -> bool:
    """Refuse options of lists for a command that shows a single record; return whether to print JSON.

    Args:
        asked: Values of the list's options.
        what: Argument that names the record.

    Raises:
        UsageError: An option of lists was given.
    """
    form = asked.form not in (Form.TABLE, Form.JSON)
    if form or asked.columns or asked.sort or asked.watch or asked.filtered:
        raise click.UsageError(f"with {what} only --json is possible; for a list leave {what} out")
    return asked.form is Form.JSON


def _refuse_vain(asked: Asked[Any, Any]) -> None:
    """Refuse options that would have no effect."""
    if asked.columns and asked.form not in (Form.TABLE, Form.WIDE):
        raise click.UsageError(f"--columns is for tables, not for {asked.form}")
    if asked.watch and asked.form is Form.YAML:
        raise click.UsageError("--watch prints one document per line, which YAML cannot: use -o json")
