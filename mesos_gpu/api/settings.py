"""What an operator may set of the REST interface."""

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
    """What an operator may set."""

    webui_url: str
    version: str
    host_names: tuple[str, ...] = ()  # by which clients may call this host, beside its addresses
    permits: Permits = field(default_factory=Permits)
    agent_authorization: str = field(default="", repr=False)  # the header that agents want, to read logs
    agent_tls: ssl.SSLContext | None = None  # None: agents speak plain HTTP
    container_engine: Engine = Engine.MESOS  # of jobs whose image comes without one
    service_ports: range = SERVICE_PORTS  # those that apps get that leave theirs open
    who: Who | None = None  # says who calls; None: nobody is asked
    identify: Identify = nobody_is_asked  # the same where `who` is None, for tests
    longest_token_s: float = MAX_TOKEN_S  # that a token may live
    has_user_pool: bool = False  # whether jobs that name no user get one each, on their host
    open_to_all: bool = False  # other machines reach it, and nobody has to prove who he is
    tls: ReloadedTls | None = None  # None: plain HTTP is spoken
    limits: Limits = field(default_factory=Limits)  # of each caller
    audit: AuditTrail | None = None  # None: lines of the log alone
    own_url: str = ""  # where executors reach this very process
    own_url_is_told: bool = False  # by the operator: then another certificate may be seen there
    records: UseRecords | None = None  # of what jobs have used; None: none are kept
    uploads: UploadStore | None = None  # archives that are sent along with jobs; None: none are taken
    hooks: HookStore | None = None  # webhooks; None: there can be none
    sender: Sender | None = None  # that sends to them
    task_key: Callable[[], bytes] = bytes  # that the secrets of launches are made of; empty: there are none
    peers: Peers | None = None  # other schedulers of this cluster; None: this one is alone
    leader_url: str = ""  # the one that leads, if that is this one; "": it is at `webui_url`
    flags: tuple[Flag, ...] = ()  # the scheduler's options
    figures: HttpFigures = field(default_factory=HttpFigures)  # of requests
