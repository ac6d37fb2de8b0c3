"""Findings of the doctor about the scheduler that this host's commands use."""

import time
from collections.abc import Sequence
from typing import Final

from isolator.node.findings import Finding, Level
from mesos_gpu.api.spec.shapes import Node, Status
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.errors import MesosGpuError

ANSWER_S: Final = 5.0
_SCHEDULER, _TLS, _LOGIN, _JOURNAL, _LEVELS = "scheduler", "tls", "login", "journal", "levels"
_AGENT: Final = "agent"


def of_scheduler(reach: Reach) -> list[Finding]:
    """Return findings about the scheduler's status; a missing answer is a finding too."""
    try:
        with Client(reach, read_timeout_s=ANSWER_S) as client:
            return [*of_status(reach, client.status()), *of_nodes(client.nodes())]
    except MesosGpuError as err:
        return [Finding(_SCHEDULER, Level.WARN, err.what, err.remedy)]


def of_nodes(nodes: Sequence[Node]) -> list[Finding]:
    """Return findings about agents on which the scheduler cannot start anything."""
    remedy = (
        "install the programs on the agent, or start the scheduler with --executor-archive; docs/install.md"
    )
    problems = [(node["hostname"], node["launch_problem"]) for node in nodes]
    return [Finding(_AGENT, Level.WARN, f"{host}: {why}", remedy) for host, why in problems if why]


def of_status(reach: Reach, status: Status) -> list[Finding]:
    """Return findings about the answer of /v1/status."""
    findings = [Finding(_SCHEDULER, Level.OK, f"{reach.url} answers")]
    if status["open_to_all"]:
        text = f"{reach.url} has no authentication: everyone who reaches it over the network has full control"
        remedy = "start it with authentication such as --tls-client-ca, or on loopback behind a proxy"
        findings[0] = Finding(_SCHEDULER, Level.WARN, text, remedy)
    if status["issuer_problem"]:
        remedy = "check the issuer, and that the scheduler's host reaches it; docs/security.md"
        findings.append(Finding(_LOGIN, Level.WARN, status["issuer_problem"], remedy))
    if of_journal := status.get("journal_problem"):  # absent in schedulers of earlier releases
        remedy = (
            "free space on its file system, or change the scheduler's --journal-size or --journal-keep-days"
        )
        findings.append(Finding(_JOURNAL, Level.WARN, of_journal, remedy))
    if of_levels := status.get("level_problem"):  # absent in schedulers of earlier releases
        remedy = "correct the agents' attributes so that groups are nested; docs/topology.md"
        findings.append(Finding(_LEVELS, Level.WARN, of_levels, remedy))
    tls = status["tls"]
    if tls is None:
        if not reach.keeps_secrets:
            text = f"{reach.url} uses plain HTTP: requests can be read on the network"
            remedy = "start the scheduler with --tls-cert and --tls-key, and use its https:// URL"
            findings.append(Finding(_TLS, Level.WARN, text, remedy))
    elif tls["problem"]:
        findings.append(
            Finding(_TLS, Level.WARN, tls["problem"], "renew the certificate or list; docs/tls.md")
        )
    else:
        until = time.strftime("%Y-%m-%d", time.gmtime(tls["not_after"]))
        findings.append(Finding(_TLS, Level.OK, f"certificate of {tls['subject']}, until {until}"))
    return findings
