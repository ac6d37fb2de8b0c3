"""`mesos-gpu gpus`, `nodes` and `status`: the cluster as the scheduler sees it."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.share import parts

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Node, Tls


_GPUS: Final = Fit(
    cut=("REASON", "MODEL"),
    leave=("MEM_MIB", "MODEL", "REASON", "UUID", "SHARE"),
    ids=("UUID", "JOB"),
    hosts=("HOST",),
    names=("JOB",),
)
_WIDE: Final = replace(
    _GPUS, leave=("MEM_MIB", "MODEL", "REASON", "UUID", "GUARANTEE", "METHOD", "USED", "SHARE")
)
_NODES: Final = Fit(
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
        "TASKS",
        "DRAINED",
    ),
    hosts=("HOST",),
)


@click.command()
@click.option(
    "--wide", is_flag=True, help="What is used of shares too, how they are enforced, and who guarantees it."
)
@json_option
@api_command
def gpus(app: App, wide: bool, as_json: bool) -> None:
    """List the GPUs of the cluster and who holds them.

    A GPU that jobs share has a row for each share and one for what is free of it. Where it says `uncovered`, the
    shares run on, but Mesos may offer the GPU to others, and it takes no more shares until that has ended.
    """
    gpus = app.client().gpus()
    if as_json:
        output.document(gpus)
        return
    output.table(
        (
            "HOST",
            "MINOR",
            "MODEL",
            "MEM_MIB",
            "HEALTH",
            "UUID",
            "JOB",
            "SHARE",
            *(("USED", "METHOD", "GUARANTEE") if wide else ()),
            "REASON",
        ),
        [
            (
                g["hostname"],
                g["minor"],
                g["model"],
                g["memory_mib"],
                g["health"],
                g["uuid"],
                part.job_id,
                part.share,
                *((part.used, part.method, part.guarantee) if wide else ()),
                g["reason"],
            )
            for g in gpus
            for part in parts(g)
        ],
        empty="No node has reported a GPU.",
        fit=_WIDE if wide else _GPUS,
    )


@click.command()
@json_option
@api_command
def nodes(app: App, as_json: bool) -> None:
    """List the agents of the cluster."""
    _show_nodes(app, as_json)


@click.command("list")
@json_option
@api_command
def list_nodes(app: App, as_json: bool) -> None:
    """List the agents of the cluster."""
    _show_nodes(app, as_json)


def _attributes(node: "Node") -> dict[str, str]:
    """The node's attributes with its domain, by the names that constraints have for it."""
    domain = {"@region": node["region"], "@zone": node["zone"]}
    return {**node["attributes"], **{key: value for key, value in domain.items() if value}}


def _volume(node: "Node") -> str | None:
    """`ready` is the running driver's; another version is said, and is not of use to a new task."""
    if node["volume"] is None:
        return "none" if node["volume_problem"] else None
    return "ready" if node["volume"] == node["driver_version"] else node["volume"]


def _isolation(node: "Node") -> str | None:
    """The node's isolation, with a word where tasks reach what commands the cluster."""
    is_open = node["control_ports"] == "off" and node["isolation"] != "off"
    return f"{node['isolation']}, ports open" if is_open else node["isolation"]


def _show_nodes(app: App, as_json: bool) -> None:
    nodes = app.client().nodes()
    if as_json:
        output.document(nodes)
        return
    output.table(
        (
            "HOST",
            "STATE",
            "GPUS",
            "USED",
            "SICK",
            "TASKS",
            "DRIVER",
            "CUDA",
            "VOLUME",
            "SOURCE",
            "ISOLATION",
            "REPORTED",
            "AGENT",
            "DRAINED",
            "ATTRIBUTES",
        ),
        [
            (
                n["hostname"],
                n["state"],
                n["gpus_total"],
                n["gpus_used"],
                n["gpus_sick"],
                n["tasks"],
                n["driver_version"],
                n["cuda_version"],
                _volume(n),
                n["source"],
                _isolation(n),
                output.age(n["reported_at"]),
                n["agent_id"],
                n["drain"]["reason"] if n["drain"] else None,
                ",".join(f"{key}={value}" for key, value in sorted(_attributes(n).items())),
            )
            for n in nodes
        ],
        empty="No agent has offered anything yet.",
        fit=_NODES,
    )
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
        output.note("whoever reaches it over the network can do EVERYTHING: there is no authentication")
    if summary["tls"] and summary["tls"]["problem"]:
        output.note(f"TLS: {summary['tls']['problem']}")
    if summary["issuer_problem"]:
        output.note(f"logins at the issuer may fail: {summary['issuer_problem']}")
    if summary["unsaved"]:
        output.note(summary["unsaved"])
    if summary["tasks_unknown"]:
        many = "1 task runs" if summary["tasks_unknown"] == 1 else f"{summary['tasks_unknown']} tasks run"
        output.note(f"{many} that the scheduler's state does not know: mesos-gpu tasks unknown list")
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
