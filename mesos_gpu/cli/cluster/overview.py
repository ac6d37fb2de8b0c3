"""`mesos-gpu gpus`, `nodes` and `status`: the cluster as the scheduler sees it."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.cluster.gpu import GPU_FILTERS, Row
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.share import busy, busy_pct, parts
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.wire.listing.filters import By, labels_of

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, Node, Tls

GPUS: Final[Listing["Gpu", Row]] = Listing(
    columns=(
        Col("HOST", lambda row: row.gpu["hostname"]),
        Col("INDEX", lambda row: row.gpu["index"]),
        Col("MODEL", lambda row: row.gpu["model"]),
        Col("MEM_MIB", lambda row: row.gpu["memory_mib"]),
        Col("HEALTH", lambda row: row.gpu["health"]),
        aged("FOR", lambda row: row.gpu["since"], wide=True),
        Col("UUID", lambda row: row.gpu["uuid"]),
        Col("BUS_ID", lambda row: row.gpu["pci_bus_id"]),
        Col("MINOR", lambda row: row.gpu["minor"], wide=True),
        Col("JOB", lambda row: row.part.job_id),
        Col("USE", lambda row: busy(row.gpu), lambda row: busy_pct(row.gpu), telling=True, moves=True),
        Col("SHARE", lambda row: row.part.share),
        Col("USED", lambda row: row.part.used, wide=True),
        Col("METHOD", lambda row: row.part.method, wide=True),
        Col("GUARANTEE", lambda row: row.part.guarantee, wide=True),
        Col("REASON", lambda row: row.gpu["reason"]),
    ),
    id=lambda gpu: gpu["uuid"],
    rows=lambda gpu: (Row(gpu, part) for part in parts(gpu)),
    filters=GPU_FILTERS,
    fit=Fit(
        cut=("REASON", "MODEL"),
        leave=(
            "MINOR",
            "BUS_ID",
            "FOR",
            "MEM_MIB",
            "MODEL",
            "REASON",
            "USE",
            "UUID",
            "GUARANTEE",
            "METHOD",
            "USED",
            "SHARE",
        ),
        ids=("UUID", "JOB"),
        hosts=("HOST",),
        names=("JOB",),
    ),
    states=[health.value for health in Health],
)
NODES: Final[Listing["Node", "Node"]] = Listing(
    columns=(
        Col("HOST", lambda node: node["hostname"]),
        Col("STATE", lambda node: node["state"]),
        Col("GPUS", lambda node: node["gpus_total"]),
        Col("USED", lambda node: node["gpus_used"]),
        Col("SICK", lambda node: node["gpus_sick"]),
        Col("TASKS", lambda node: node["tasks"]),
        Col("DRIVER", lambda node: node["driver_version"]),
        Col("CUDA", lambda node: node["cuda_version"]),
        Col("VOLUME", lambda node: _volume(node)),
        Col("SOURCE", lambda node: node["source"]),
        Col("ISOLATION", lambda node: _isolation(node)),
        aged("REPORTED", lambda node: node["reported_at"]),
        Col("AGENT", lambda node: node["agent_id"]),
        Col("DRAINED", lambda node: node["drain"]["reason"] if node["drain"] else None),
        Col("ATTRIBUTES", lambda node: ",".join(_attributes(node))),
        Col("CPUS", lambda node: _free_of(node.get("cpus_free"), node.get("cpus_total"))),
        Col(
            "MEM_GIB", lambda node: _free_of(_gib(node.get("mem_mib_free")), _gib(node.get("mem_mib_total")))
        ),
    ),
    id=lambda node: node["hostname"],
    rows=lambda node: (node,),
    filters={
        By.STATE: lambda node: (node["state"], *(("drained",) if node["drain"] else ())),
        By.NODE: lambda node: (node["hostname"], node["agent_id"]),
        By.LABEL: lambda node: _attributes(node),
    },
    fit=Fit(
        cut=("ATTRIBUTES", "DRAINED"),
        leave=(
            "ATTRIBUTES",
            "AGENT",
            "SOURCE",
            "REPORTED",
            "CUDA",
            "VOLUME",
            "DRIVER",
            "ISOLATION",
            "MEM_GIB",
            "CPUS",
            "TASKS",
            "DRAINED",
        ),
        hosts=("HOST",),
    ),
    states=("up", "unmonitored", "unfit", "backed-off", "lost", "drained"),
)


@click.command()
@click.option("--wide", is_flag=True, help="Also show the use of shares, and the method that enforces them.")
@list_options(GPUS)
@api_command
def gpus(app: App, wide: bool, asked: "Asked[Gpu, Row]") -> None:
    """List the GPUs of the cluster and the jobs that hold them.

    A shared GPU has a row for each share, and one for its free part. `uncovered` means that no cover task holds the GPU
    in Mesos: its shares keep running, but Mesos may offer it to others, and it gets no more shares meanwhile.
    """
    client, empty = app.client(), "No such GPU." if asked.filtered else "No node has reported a GPU."
    show(asked, lambda: Seen(client.gpus(), empty), wide=wide)


@click.command()
@list_options(NODES)
@api_command
def nodes(app: App, asked: "Asked[Node, Node]") -> None:
    """List the agents of the cluster.

    CPUS and MEM_GIB are free and total amounts for this framework, by the latest offers. A task gets 98 % of the CPUs
    that it requests: the rest is for its executor and the node's monitor.
    """
    _show_nodes(app, asked)


@click.command("list")
@list_options(NODES)
@api_command
def list_nodes(app: App, asked: "Asked[Node, Node]") -> None:
    """List the agents of the cluster.

    CPUS and MEM_GIB are free and total amounts for this framework, by the latest offers. A task gets 98 % of the CPUs
    that it requests: the rest is for its executor and the node's monitor.
    """
    _show_nodes(app, asked)


def _attributes(node: "Node") -> list[str]:
    """Return the node's attributes and its region and zone as KEY=VALUE, by the names used in constraints."""
    domain = {"@region": node["region"], "@zone": node["zone"]}
    attributes = {**node["attributes"], **{key: value for key, value in domain.items() if value}}
    return labels_of(attributes)


def _free_of(free: float | None, total: float | None) -> str | None:
    """Return "FREE/TOTAL"; None if an amount is not known."""
    return None if free is None or total is None else f"{free:g}/{total:g}"


def _gib(mib: float | None) -> float | None:
    return None if mib is None else round(mib / 1024, 1)


def _volume(node: "Node") -> str | None:
    """Return `ready` for a volume of the running driver, the version of another volume, or `none` with a problem."""
    if node["volume"] is None:
        return "none" if node["volume_problem"] else None
    return "ready" if node["volume"] == node["driver_version"] else node["volume"]


def _isolation(node: "Node") -> str | None:
    """Return the node's isolation, with a remark if tasks can reach the control ports."""
    is_open = node["control_ports"] == "off" and node["isolation"] != "off"
    return f"{node['isolation']}, ports open" if is_open else node["isolation"]


def _show_nodes(app: App, asked: "Asked[Node, Node]") -> None:
    client = app.client()

    def load() -> "Seen[Node]":
        nodes = client.nodes()
        empty = "No such node." if asked.filtered else "No agent has offered anything yet."
        return Seen(nodes, empty, below=_tell_problems)

    show(asked, load)


def _tell_problems(nodes: "Sequence[Node]") -> None:
    for problem in sorted({n["volume_problem"] for n in nodes if n["volume_problem"]}):
        where = ", ".join(n["hostname"] for n in nodes if n["volume_problem"] == problem)
        output.note(f"no driver volume on {where}: {problem}")


@click.command()
@json_option
@api_command
def status(app: App, as_json: bool) -> None:
    """Show the scheduler and a summary of the cluster."""
    client = app.client()
    summary = client.status()
    if as_json:
        output.document({"url": client.url, **summary})
        return
    jobs = ", ".join(f"{count} {state}" for state, count in summary["jobs"].items() if count)
    output.pairs(
        [
            (
                "scheduler",
                f"{client.url}, version {summary['version']}, up for {output.age(summary['started_at'])}",
            ),
            (
                "master",
                f"{summary['master_url'] or '-'} ({'connected' if summary['connected'] else 'NOT CONNECTED'})",
            ),
            ("framework", summary["framework_id"]),
            ("dashboard", summary["webui_url"]),
            *([("tls", _tls(summary["tls"]))] if summary["tls"] else []),
            ("nodes", summary["nodes"]),
            (
                "gpus",
                f"{summary['gpus_used']} of {summary['gpus_total']} in use, {summary['gpus_sick']} sick, "
                f"{summary['gpus_drained']} drained",
            ),
            ("jobs", jobs or "none"),
        ]
    )
    if summary["open_to_all"]:
        output.note("everyone who reaches it over the network has FULL CONTROL: there is no authentication")
    if summary["tls"] and summary["tls"]["problem"]:
        output.note(f"TLS: {summary['tls']['problem']}")
    if summary["issuer_problem"]:
        output.note(f"logins at the issuer may fail: {summary['issuer_problem']}")
    if summary["unsaved"]:
        output.note(summary["unsaved"])
    if of_journal := summary.get("journal_problem"):  # absent in schedulers of earlier releases
        output.note(of_journal)
    if of_levels := summary.get("level_problem"):  # absent in schedulers of earlier releases
        output.note(of_levels)
    if summary["tasks_unknown"]:
        many = "1 task runs" if summary["tasks_unknown"] == 1 else f"{summary['tasks_unknown']} tasks run"
        output.note(f"{many} that the scheduler does not know: mesos-gpu tasks unknown list")
    if summary["isolation_off"]:
        off = ", ".join(summary["isolation_off"])
        output.note(f"isolation is OFF on {off}: tasks there can use every GPU of the host")
    if summary["control_ports_off"]:
        off = ", ".join(summary["control_ports_off"])
        output.note(f"the control ports are OPEN to tasks on {off}: tasks there can command the cluster")


def _tls(tls: "Tls") -> str:
    until = time.strftime("%Y-%m-%d", time.gmtime(tls["not_after"]))
    asked = "" if tls["clients"] == Clients.NONE.value else f", clients' certificates {tls['clients']}"
    return f"{tls['subject']}, until {until}{asked}"
