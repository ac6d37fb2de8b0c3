"""What the doctor says of the scheduler that this host's commands speak to."""

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
    """Ask it how it can be reached; an answer that does not come is a finding, too."""
    try:
        with Client(reach, read_timeout_s=ANSWER_S) as client:
            return [*of_status(reach, client.status()), *of_nodes(client.nodes())]
    except MesosGpuError as err:
        return [Finding(_SCHEDULER, Level.WARN, err.what, err.remedy)]


def of_nodes(nodes: Sequence[Node]) -> list[Finding]:
    """Return findings about agents on which the scheduler can start nothing."""
    remedy = (
        "install the programs on the agent, or start the scheduler with --executor-archive; docs/install.md"
    )
    problems = [(node["hostname"], node["launch_problem"]) for node in nodes]
    return [Finding(_AGENT, Level.WARN, f"{host}: {why}", remedy) for host, why in problems if why]


def of_status(reach: Reach, status: Status) -> list[Finding]:
    """What an operator should know of what /v1/status says."""
    findings = [Finding(_SCHEDULER, Level.OK, f"{reach.url} answers")]
    if status["open_to_all"]:
        text = f"{reach.url} is open to all: whoever reaches it over the network can do everything"
        remedy = (
            "start it with --tls-client-ca, or another proof of who calls; or on loopback, behind a proxy"
        )
        findings[0] = Finding(_SCHEDULER, Level.WARN, text, remedy)
    if status["issuer_problem"]:
        remedy = "look at the issuer, and whether the scheduler's host reaches it; docs/security.md"
        findings.append(Finding(_LOGIN, Level.WARN, status["issuer_problem"], remedy))
    if of_journal := status.get("journal_problem"):  # a scheduler of an earlier version has none
        remedy = "give its file system room, or the scheduler another --journal-size or --journal-keep-days"
        findings.append(Finding(_JOURNAL, Level.WARN, of_journal, remedy))
    if of_levels := status.get("level_problem"):  # likewise
        remedy = "give its agents attributes of groups within each other; docs/topology.md"
        findings.append(Finding(_LEVELS, Level.WARN, of_levels, remedy))
    tls = status["tls"]
    if tls is None:
        if not reach.keeps_secrets:
            text = f"{reach.url} is spoken to in plain HTTP: what is sent can be read on the way"
            remedy = "start the scheduler with --tls-cert and --tls-key, and name it by https://"
            findings.append(Finding(_TLS, Level.WARN, text, remedy))
    elif tls["problem"]:
        findings.append(Finding(_TLS, Level.WARN, tls["problem"], "renew what it names; docs/tls.md"))
    else:
        until = time.strftime("%Y-%m-%d", time.gmtime(tls["not_after"]))
        findings.append(Finding(_TLS, Level.OK, f"certificate of {tls['subject']}, until {until}"))
    return findings
