"""A list as it was asked for: a table, a document, names; once."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.lists.columns import Listing, R, T
from mesos_gpu.cli.lists.options import Asked, Form
from mesos_gpu.cli.lists.seen import Seen, cells_of, columns_of


def show(asked: Asked[T, R], look: Callable[[], Seen[T]], *, wide: bool = False) -> None:
    """Print what `look` sees; with --watch again and again. `wide`: a table has all columns, as far as there is room.

    Raises:
        MesosGpuError: What `look` raises; with --watch not where the scheduler is merely away.
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
    """A table of records, as it is without options: a part of what another command prints."""
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

    # What is not ASCII is escaped, also what would command a terminal.
    plain = json.loads(json.dumps(seen.document(records)))  # objects of answers are no plain dicts
    click.echo(yaml.safe_dump(plain, sort_keys=False, width=1000), nl=False)


def _print_names(asked: Asked[T, R], _seen: Seen[T], records: Sequence[T], _wide: bool) -> None:
    for name in dict.fromkeys(asked.listing.id(record) for record in records):
        output.line(name)


_PRINT: dict[Form, Callable[[Asked[Any, Any], Seen[Any], Sequence[Any], bool], None]] = {
    Form.JSON: _print_json,
    Form.YAML: _print_yaml,
    Form.NAME: _print_names,
}
