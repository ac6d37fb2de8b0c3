"""`mesos-gpu audit`: records of changes and refused requests."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, Form, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.types import PAST
from mesos_gpu.errors import Damaged

if TYPE_CHECKING:
    from mesos_gpu.adapters.audit.verify import Verified
    from mesos_gpu.api.spec.audit import AuditEntry
    from mesos_gpu.cli.client import Client

_POLL_S: Final = 1.0
_AGAIN_S: Final = 5.0
_PAGE: Final = 1000
_EMPTY: Final = "No records."
_UNPROVED: Final = ("nobody", "anybody", "scheduler")  # names without a claim to prove


def _who(record: "AuditEntry") -> str:
    return record["who"] + ("" if record["proved"] or record["who"] in _UNPROVED else "?")


def _result(record: "AuditEntry") -> str:
    if record["result"] == "done":
        return "done"
    times = f" x{record['count']}" if record["count"] > 1 else ""
    return " ".join(filter(None, (str(record["status"] or record["result"]), record["reason"]))) + times


_RECORDS: Final[Listing["AuditEntry", "AuditEntry"]] = Listing(
    columns=(
        Col("TIME", lambda record: output.short_stamp(record["at"]), lambda record: record["at"]),
        Col("WHO", _who),
        Col("WHAT", lambda record: record["right"] or record["what"]),
        Col("ON", lambda record: " ".join(record["on"])),
        Col("RESULT", _result),
        Col("FROM", lambda record: " ".join(filter(None, (record["address"], record["relayed"])))),
        Col("PROOF", lambda record: record["proof"]),
        Col("REQUEST", lambda record: record["request_id"]),
        Col("DETAIL", lambda record: record["detail"], wide=True),
        Col("ID", lambda record: record["id"], wide=True),
    ),
    id=lambda record: record["id"],
    rows=lambda record: (record,),
    filters={},
    fit=Fit(cut=("ON", "WHO"), leave=("REQUEST", "PROOF", "FROM", "ON"), names=("ON",)),
)


@click.command()
@list_options(_RECORDS)
@click.option(
    "--who", metavar="NAME", help="Only records of this user; a trailing * matches all names that begin so."
)
@click.option(
    "--what",
    metavar="TEXT",
    help="Only this right, such as job:kill, or this part of verb and route, such as DELETE.",
)
@click.option(
    "--on",
    metavar="ID",
    help="Only records about this object: job:ID, app:/shop/*, gpu:UUID, node:HOST, or just an ID.",
)
@click.option("--since", type=PAST, help="Only later records: 2h (ago), or 2027-03-01T08:00.")
@click.option("--until", type=PAST, help="Only earlier records.")
@click.option("--refused", is_flag=True, help="Only refused requests.")
@click.option(
    "-n",
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Number of latest records.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new records, until Ctrl-C.")
@click.option("--verify", is_flag=True, help="Check the files for changed, removed or inserted lines.")
@click.option(
    "--host",
    "of_host",
    is_flag=True,
    help="Show commands of root on this host without the scheduler, from the host's own file.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="MESOS_GPU_AUDIT",
    help="The scheduler's --audit-dir, for --verify; default: that of `mesos-gpu up`.",
)
@api_command
def audit(
    app: App,
    limit: int,
    follow: bool,
    verify: bool,
    of_host: bool,
    directory: Path | None,
    refused: bool,
    asked: "Asked[AuditEntry, AuditEntry]",
    **filters: Any,
) -> None:
    """List who changed what and what was refused, newest last.

    WHO with a ? is claimed without authentication. --verify reads the files on this host; its exit code is 65 if they
    were modified.

    \b
      mesos-gpu audit --who ann --since 2d
      mesos-gpu audit --on job:train-1a2b3c4d
    """
    if verify:
        _verify(_place(of_host, directory), asked.form is Form.JSON)
        return
    if follow and (asked.form not in (Form.TABLE, Form.JSON) or asked.columns or asked.sort or asked.watch):
        raise click.UsageError(
            "--follow prints lines, or documents with --json: remove the other format options"
        )
    query = {name: value for name, value in filters.items() if value is not None}
    if refused:
        query["result"] = "refused"
    if of_host:
        show(asked, lambda: Seen(_of_host(query, limit), _EMPTY))
        return
    client = app.client()
    if follow:
        _follow(client, query, _newest(client, query, limit), asked.form is Form.JSON)
    else:
        show(asked, lambda: Seen(_newest(client, query, limit), _EMPTY))


def _place(of_host: bool, directory: Path | None) -> Path:
    """Return the directory of the files to verify."""
    from mesos_gpu.adapters.audit import host
    from mesos_gpu.cli.local.up import directory as of_up

    return host.directory() if of_host else directory or of_up() / "scheduler" / "audit"


def _of_host(query: dict[str, Any], limit: int) -> "list[AuditEntry]":
    """Return the last records of this host's own file, oldest first."""
    from mesos_gpu.access.asked import Asked
    from mesos_gpu.adapters.audit.directory import Directory
    from mesos_gpu.adapters.audit.search import search
    from mesos_gpu.api.v1.audit import shown
    from mesos_gpu.model.access.record import Result

    asked = Asked(**{**query, **({"result": Result(query["result"])} if "result" in query else {})})
    records: list[AuditEntry] = []
    cursor: str | None = None
    if not _place(True, None).exists():
        return records  # created by the first recorded command of root
    with Directory(_place(True, None), make=False) as directory:
        while cursor != "" and len(records) < limit:
            page = search(directory, asked, limit=limit - len(records), cursor=cursor or "")
            records += [shown(id, record) for id, record in page.records]
            cursor = page.cursor
    return records[::-1]


def _newest(client: "Client", query: dict[str, Any], limit: int) -> "list[AuditEntry]":
    """Return the last `limit` matching records, oldest first."""
    from mesos_gpu.api.spec.audit import Audit

    records: list[AuditEntry] = []
    cursor: str | None = ""
    while cursor is not None and len(records) < limit:
        asked = {**query, "limit": min(limit - len(records), _PAGE), **({"cursor": cursor} if cursor else {})}
        page: Audit = client.call("GET", "/v1/audit", Audit, asked)
        if not records and page["full"]:
            output.note(f"the scheduler refuses changes now: {page['full']}")
        records += page["records"]
        cursor = page["cursor"]
    return records[::-1]


def _follow(client: "Client", query: dict[str, Any], records: "list[AuditEntry]", as_json: bool) -> None:
    """Print records and then new ones; the last seconds are requested again, because times may be equal."""
    last, seen = time.time(), set[str]()
    while True:
        fresh = [record for record in records if record["id"] not in seen]
        for record in fresh:
            _print(record, as_json)
        last = max([record["at"] for record in fresh], default=last)
        seen = {record["id"] for record in records}
        time.sleep(_POLL_S)
        records = _newest(client, {**query, "since": max(last - _AGAIN_S, 0.0)}, _PAGE)


def _print(record: "AuditEntry", as_json: bool) -> None:
    if as_json:
        output.document(record)
    else:
        cells = (col.value(record) for col in _RECORDS.columns if not col.wide)
        output.line("  ".join(str(cell) for cell in cells if cell))


def _verify(at: Path, as_json: bool) -> None:
    """Check the audit files, print the results, and raise `Damaged` if they were modified."""
    from mesos_gpu.adapters.audit.verify import verify

    chains = verify(at)
    if as_json:
        output.document([_document(chain) for chain in chains])
    else:
        for chain in chains:
            for text in _report(chain):
                output.line(text)
    flaws = sum(len(chain.flaws) for chain in chains)
    if flaws:
        raise Damaged(
            f"the audit log in {at} was modified: {flaws} flaws",
            remedy="compare it with a copy; anyone who can write there can also recompute the hashes",
        )


def _report(chain: "Verified") -> list[str]:
    lines = f"lines {chain.first} to {chain.head.seq}" if chain.lines else "no lines"
    state = f"{len(chain.flaws)} FLAWS" if chain.flaws else "sound"
    torn = ", the last one unfinished" if chain.unfinished else ""
    hash = f"; the last one's SHA-256 is {chain.head.hash}" if chain.lines else ""
    return [
        f"{chain.kind}: {lines} in {chain.files} files{torn}: {state}{hash}",
        *(f"  {flaw.where}: {flaw.why}" for flaw in chain.flaws),
    ]


def _document(chain: "Verified") -> dict[str, object]:
    return {
        "kind": chain.kind,
        "files": chain.files,
        "lines": chain.lines,
        "first": chain.first,
        "last": chain.head.seq,
        "hash": chain.head.hash,
        "unfinished": chain.unfinished,
        "flaws": [{"where": flaw.where, "why": flaw.why} for flaw in chain.flaws],
    }
