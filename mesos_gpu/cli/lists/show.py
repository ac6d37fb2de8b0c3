"""Printing of a list in the requested format, once."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.lists.columns import Listing, R, T
from mesos_gpu.cli.lists.options import Asked, Form
from mesos_gpu.cli.lists.seen import Seen, cells_of, columns_of


def show(asked: Asked[T, R], look: Callable[[], Seen[T]], *, wide: bool = False) -> None:
    """Print the list that `look` returns; with --watch repeatedly. `wide` shows all columns that fit.

    Raises:
        MesosGpuError: Raised by `look`; with --watch not if the scheduler is only unreachable.
    """
    if asked.watch:
        from mesos_gpu.cli.lists.watch import watch

        watch(asked, look, wide=wide)
        return
    seen = look()
    records = asked.chosen(seen.records)
    _PRINT.get(asked.form, _print_table)(asked, seen, records, wide)
    if asked.form in (Form.TABLE, Form.WIDE):
        seen.below(records)
    for note in seen.notes:
        output.note(note)


def print_table(listing: Listing[T, R], records: Sequence[T]) -> None:
    """Print a table of records with default options, as part of another command's output."""
    _print_table(Asked(listing, Form.TABLE, (), (), False, {}), Seen(records, ""), records, False)


def _print_table(asked: Asked[T, R], seen: Seen[T], records: Sequence[T], wide: bool) -> None:
    columns = columns_of(asked, records, wide)
    output.table(
        [col.header for col in columns],
        cells_of(asked, columns, records),
        empty=seen.empty,
        fit=asked.listing.fitted(asked.columns, columns),
        whole=asked.form is Form.WIDE,
    )


def _print_json(_asked: Asked[T, R], seen: Seen[T], records: Sequence[T], _wide: bool) -> None:
    output.document(seen.document(records))


def _print_yaml(_asked: Asked[T, R], seen: Seen[T], records: Sequence[T], _wide: bool) -> None:
    import yaml

    # Non-ASCII characters are escaped, including those that control terminals.
    plain = json.loads(json.dumps(seen.document(records)))  # converts the answer's objects to plain dicts
    click.echo(yaml.safe_dump(plain, sort_keys=False, width=1000), nl=False)


def _print_names(asked: Asked[T, R], _seen: Seen[T], records: Sequence[T], _wide: bool) -> None:
    for name in dict.fromkeys(asked.listing.id(record) for record in records):
        output.line(name)


_PRINT: dict[Form, Callable[[Asked[Any, Any], Seen[Any], Sequence[Any], bool], None]] = {
    Form.JSON: _print_json,
    Form.YAML: _print_yaml,
    Form.NAME: _print_names,
}
