"""Settings of the REST interface."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.access.rate import Limits
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.uploads.store import UploadStore
from mesos_gpu.api.http.authenticate import Identify, nobody_is_asked
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.metrics.http import HttpFigures
from mesos_gpu.api.peers import Peers
from mesos_gpu.api.spec.cluster.upgrade import Flag
from mesos_gpu.model.jobs.job import Engine
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.ports import AuditTrail, UseRecords

MAX_TOKEN_S: Final = 365 * 86400.0
SERVICE_PORTS: Final = range(10000, 20001)  # as Marathon's --local_port_min and --local_port_max


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Settings of the REST interface, most of them from the operator's options."""

    webui_url: str
    version: str
    host_names: tuple[str, ...] = ()  # of this host that clients may use, beside its addresses
    permits: Permits = field(default_factory=Permits)
    # Authorization header for reading logs from agents.
    agent_authorization: str = field(default="", repr=False)
    agent_tls: ssl.SSLContext | None = None  # for connections to agents, unless they speak plain HTTP
    container_engine: Engine = Engine.MESOS  # for jobs whose image names no engine
    service_ports: range = SERVICE_PORTS  # assigned to apps that do not choose their ports
    who: Who | None = None  # identifies callers; None if authentication is off
    identify: Identify = nobody_is_asked  # replaces `who` in tests without authentication
    longest_token_s: float = MAX_TOKEN_S  # longest lifetime of a token
    has_user_pool: bool = False  # whether each job that names no user gets a separate one on its host
    open_to_all: bool = False  # reachable from other machines without authentication
    tls: ReloadedTls | None = None  # None for plain HTTP
    limits: Limits = field(default_factory=Limits)  # of each caller
    audit: AuditTrail | None = None  # None if changes are recorded in the log only
    own_url: str = ""  # where executors reach this process
    own_url_is_told: bool = False  # set by the operator: its certificate may be another one
    records: UseRecords | None = None  # usage of jobs; None if it is not recorded
    uploads: UploadStore | None = None  # archives uploaded for jobs; None if uploads are off
    hooks: HookStore | None = None  # webhooks; None if they are off
    sender: Sender | None = None  # delivers events to webhooks
    task_key: Callable[[], bytes] = bytes  # from which secrets of launches derive; empty if there are none
    peers: Peers | None = None  # other schedulers of this cluster; None without high availability
    leader_url: str = ""  # of this scheduler while it leads; "" for `webui_url`
    flags: tuple[Flag, ...] = ()  # the scheduler's options
    figures: HttpFigures = field(default_factory=HttpFigures)  # counts of requests
