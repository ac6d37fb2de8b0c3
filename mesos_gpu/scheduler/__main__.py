"""`mesos-gpu scheduler`: put the parts together and run until told to stop."""

import contextlib
import logging
import os
import pwd
import re
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from mesos_gpu import __version__
from mesos_gpu.adapters import credentials
from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.accounts import account_of
from mesos_gpu.adapters.clock import SystemClock
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.api.app import SERVICE_PORTS, ApiSettings, create_app
from mesos_gpu.api.http.guard import is_loopback_address
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import LOG_LIMIT_MIB, Settings
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.ids import AgentId, OfferId
from mesos_gpu.model.jobs.fields import NAME, USER
from mesos_gpu.model.jobs.job import Engine, GpuNodes, Placement
from mesos_gpu.model.jobs.permits import ROOTS, Control, Permits, Root
from mesos_gpu.model.jobs.quota import Quota
from mesos_gpu.model.jobs.users import Users
from mesos_gpu.model.nodes.user_pool import POOL, parse_pool
from mesos_gpu.model.shares.host_settings import MIG, MPS_PERCENTAGES
from mesos_gpu.model.shares.request import Isolation, OnExcess
from mesos_gpu.scheduler import logs
from mesos_gpu.scheduler.control import of_api
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.wire.marathon.paths import absolute, problem_of
from mesos_gpu.wire.mesos.v1 import offer_from_json, status_from_json

logger = logging.getLogger("mesos_gpu.scheduler")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    master: str
    state: Path
    host: str
    port: int
    webui_url: str | None
    role: str
    user: str
    name: str
    failover_timeout_s: float
    principal: str | None
    secret_file: Path | None
    mesos_credentials: Path | None
    default_user: str | None
    permits: Permits
    executor_command: str
    monitor_command: str
    keeper_command: str
    report_interval_s: float
    unreachable_timeout_s: float
    container_engine: str = Engine.MESOS.value
    placement: str = Placement.BUNDLE.value
    placement_of: Mapping[str, Placement] = field(default_factory=dict)
    isolation: str = Isolation.SHARED.value
    gpu_compute_overcommit: float = 1.0
    mps_across_users: bool = False
    mig: str | None = None  # of all hosts; None: as each of them says
    mps_percentages: str | None = None  # likewise
    on_gpu_excess: str = OnExcess.END.value
    gpu_nodes: str = GpuNodes.LAST.value
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    aging_step_s: float = 3600.0  # 0: waiting adds nothing
    user_pool: str = ""  # FIRST-LAST, uids for jobs that name no user
    log_limit_mib: int = LOG_LIMIT_MIB  # of each of a task's streams; 0: none
    preemption: bool = True
    cover_linger_s: float = 60.0  # of shared cards that nobody has a share of
    service_ports: range = SERVICE_PORTS
    accept_older_state: bool = False
    user_pending: int = 10_000
    queue_pending: int = 20_000
    user_stored_mib: int = 256
    queue_stored_mib: int = 512
    allowed_hosts: tuple[str, ...] = ()
    insecure_no_authentication: bool = False
    journal: Path | None = None
    journal_size_mib: int = 256


def engine_settings(options: Options) -> Settings:
    """The engine's part of the options."""
    return Settings(
        executor_command=options.executor_command,
        monitor_command=options.monitor_command,
        keeper_command=options.keeper_command,
        role=options.role,
        cover_linger_s=options.cover_linger_s,
        default_user=options.default_user,
        report_interval_s=options.report_interval_s,
        report_stale_s=3 * options.report_interval_s,
        unreachable_timeout_s=options.unreachable_timeout_s,
        placement=Placement(options.placement),
        placement_of=options.placement_of,
        isolation=Isolation(options.isolation),
        gpu_compute_overcommit=options.gpu_compute_overcommit,
        mps_across_users=options.mps_across_users,
        on_gpu_excess=OnExcess(options.on_gpu_excess),
        gpu_nodes=GpuNodes(options.gpu_nodes),
        queue_limits=options.queue_limits,
        user_quota=Quota(options.user_pending, options.user_stored_mib),
        queue_quota=Quota(options.queue_pending, options.queue_stored_mib),
        aging_step_s=options.aging_step_s or inf,
        log_limit_mib=options.log_limit_mib,
        executor_env=_executor_env(options),
        preemption=options.preemption,
        control_access=options.permits.control_access,
        sealed=True,
    )


def translate(event: pd.DriverEvent, now: float, key: bytes = b"") -> ev.Event | None:
    """A driver's event as the engine has it; None: it says nothing that a status update will not say. `key`: that the
    secrets of launches are made of."""
    match event:
        case pd.Registered():
            return ev.Registered(event.framework_id, event.master_url)
        case pd.Disconnected():
            return ev.Disconnected()
        case pd.Offers():
            return ev.OffersArrived(tuple(offer_from_json(offer, now) for offer in event.offers))
        case pd.Rescinded():
            return ev.OfferRescinded(OfferId(event.offer_id))
        case pd.Update():
            return ev.StatusArrived(status_from_json(event.status, key))
        case pd.AgentFailed():
            return ev.AgentLost(AgentId(event.agent_id))
        case _:
            return None


class Sink:
    """Where the driver's thread puts its events. It only translates and enqueues."""

    def __init__(self, now: Callable[[], float], key: bytes = b"") -> None:
        """The daemon is set later: it needs the driver first. `key`: as of `translate`."""
        self._now, self._key = now, key
        self.daemon: Daemon | None = None

    def __call__(self, event: pd.DriverEvent) -> None:
        """Take in an event of the driver, on its thread."""
        assert self.daemon is not None, "the driver starts after the daemon is set"
        if isinstance(event, pd.FatalError):
            self.daemon.fail(
                MesosGpuError(
                    f"the driver ended: {event.message}",
                    remedy="if another scheduler took over, nothing; else start anew with a fresh --state file",
                )
            )
            return
        translated = translate(event, self._now(), self._key)
        if translated is not None:
            self.daemon.put(translated)


def run(options: Options) -> int:
    """Run until SIGTERM or SIGINT, or a failure; the exit code.

    Raises:
        MesosGpuError: A part cannot start.
    """
    with contextlib.closing(listen(options.host, options.port)) as listener:
        open_to = listener.getsockname()[0]
        if not is_loopback_address(open_to) and not options.insecure_no_authentication:
            raise BadConfiguration(
                f"--host {options.host}: whoever reaches {open_to} could run commands as any user that jobs may have, "
                "for there is no authentication",
                remedy="leave --host out and put a proxy with authentication before 127.0.0.1; or, where a firewall "
                "or the network keeps others off, say so with --insecure-no-authentication",
            )
        return _run(options, listener)


def _run(options: Options, listener: socket.socket) -> int:
    host, port = options.host, listener.getsockname()[1]
    credential = credentials.read(options.mesos_credentials) if options.mesos_credentials else None
    clock = SystemClock()
    store = SqliteStore(options.state, accept_older=options.accept_older_state)
    saved, key = store.load(), store.key()
    webui_url = options.webui_url or f"http://{_reachable(host)}:{port}"
    framework = pd.FrameworkSettings(
        user=options.user,
        name=options.name,
        roles=(options.role,),
        webui_url=webui_url,
        hostname=socket.gethostname(),
        failover_timeout_s=options.failover_timeout_s,
        checkpoint=True,
        framework_id=saved.framework_id,
        principal=options.principal or (credential.principal if credential else None),
    )
    sink = Sink(clock.now, key)
    driver = pd.PymesosDriver(framework, options.master, sink, **_credential(options, credential))
    journal = Journal(options.journal, options.journal_size_mib << 20) if options.journal else None
    settings = replace(
        engine_settings(options), control_ports=of_api(host, port), principal=framework.principal
    )
    daemon = Daemon(store, saved, driver, clock, settings, journal, key)
    sink.daemon = daemon
    app = create_app(
        daemon,
        ApiSettings(
            webui_url=webui_url,
            version=__version__,
            host_names=(*options.allowed_hosts, urlsplit(webui_url).hostname or ""),
            permits=options.permits,
            agent_authorization=credential.header if credential else "",
            container_engine=Engine(options.container_engine),
            service_ports=options.service_ports,
        ),
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = Server(app, listener)
    logger.info("REST interface and dashboard on %s", _where(*listener.getsockname()[:2]))
    if not is_loopback_address(listener.getsockname()[0]):
        logger.warning("whoever reaches that address can do everything: there is no authentication")
    daemon.start()
    try:
        while not stop.is_set() and not daemon.wait(0.2):
            pass
    finally:
        server.stop()
        daemon.stop()
    return 1 if daemon.failure is not None else 0


def _where(address: str, port: int) -> str:
    """What it listens on, in words that are true."""
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f"every address of this host, port {port}" if address in ("0.0.0.0", "::") else f"http://{shown}"


def _reachable(host: str) -> str:
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host


def _credential(options: Options, of_file: credentials.Credential | None) -> dict[str, Any]:
    if options.principal is None and of_file:
        return {"principal": of_file.principal, "secret": of_file.secret}
    if options.principal is None or options.secret_file is None:
        return {}
    try:
        return {"principal": options.principal, "secret": options.secret_file.read_text().strip()}
    except OSError as error:
        raise BadConfiguration(
            f"--secret-file {options.secret_file}: {error.strerror}",
            remedy="name a file that this user can read and that holds the principal's secret",
        ) from error


def _queue_limits(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for text in given:
        name, _, most = text.partition("=")
        if not NAME.fullmatch(name) or not most.isascii() or not most.isdigit():
            raise click.BadParameter(f"{text!r} is not NAME=MAX_GPUS, as research=8")
        if name in limits:
            raise click.BadParameter(f"queue {name} has two limits")
        limits[name] = int(most)
    return limits


def _executor_env(options: Options) -> dict[str, str]:
    """What comes before the variables of agents."""
    given = {POOL: options.user_pool, MIG.name: options.mig, MPS_PERCENTAGES.name: options.mps_percentages}
    return {name: value for name, value in given.items() if value}


def _overcommit(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text, re.ASCII) or not 1 <= float(text) <= 100:
        raise click.BadParameter(f"{text!r} is not a number from 1 to 100 with 3 decimals at most, as 1.5")
    return float(text)


def _placement_of(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, Placement]:
    known = {choice.value: choice for choice in Placement}
    placements: dict[str, Placement] = {}
    for text in given:
        app, _, policy = text.partition("=")
        if not NAME.fullmatch(app) or policy not in known:
            raise click.BadParameter(f"{text!r} is not APP=POLICY, as web=spread; POLICY: {', '.join(known)}")
        if app in placements:
            raise click.BadParameter(f"app {app} has two placements")
        placements[app] = known[policy]
    return placements


def _service_ports(_ctx: click.Context, _param: click.Parameter, text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise click.BadParameter(f"{text!r} is not FIRST-LAST, as 10000-20000")
    if not 1 <= int(first) <= int(last) <= 65535:
        raise click.BadParameter(f"{text!r}: ports are from 1 to 65535, the first before the last")
    return range(int(first), int(last) + 1)


def _user_pool(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    try:
        parse_pool(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def _control_access(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[Control, ...]]:
    known = {control.value: control for control in Control}
    controls: dict[str, tuple[Control, ...]] = {}
    for text in given:
        who, _, listed = text.partition("=")
        name, at, user = who.partition("@")
        words = listed.split(",")
        is_app = name != "/" and absolute(name) == name and not problem_of(name)
        if (
            not (is_app or NAME.fullmatch(name))
            or (at and not USER.fullmatch(user))
            or not known.keys() >= set(words)
        ):
            form = f"NAME=LIST or NAME@USER=LIST, as /lb@haproxy=api; LIST: of {','.join(known)}"
            raise click.BadParameter(f"{text!r} is not {form}")
        if who in controls:
            raise click.BadParameter(f"{who} is named twice; give one list")
        controls[who] = tuple(dict.fromkeys(known[word] for word in words))
    return controls


def _users(_ctx: click.Context, _param: click.Parameter, text: str) -> Users:
    try:
        return Users.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _own_user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


@click.command()
@click.option(
    "--master", required=True, metavar="HOST:PORT", envvar="MESOS_GPU_MASTER", help="The Mesos master."
)
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), required=True, envvar="MESOS_GPU_STATE",
              help="File that keeps jobs and the framework id across restarts.")  # fmt: skip
@click.option("--accept-older-state", is_flag=True,
              help="Go on with a state file that is older than what was written; for one start.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the REST interface.")
@click.option("--insecure-no-authentication", is_flag=True,
              help="Let --host be other than loopback: whoever reaches it can do everything.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="Name by which clients may call this host, as that of --webui-url; may be repeated.")  # fmt: skip
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Its port.")
@click.option(
    "--webui-url", metavar="URL", help="What the Mesos master links to; default: the REST interface."
)
@click.option("--role", default="*", show_default=True, help="Mesos role to receive offers for.")
@click.option(
    "--user", default=_own_user, show_default="the current user", help="User that executors run as."
)
@click.option("--name", default="mesos_gpu", show_default=True, help="Name of the framework.")
@click.option("--failover-timeout", "failover_timeout_s", default=604800.0, show_default=True,
              help="Seconds that Mesos keeps the tasks while no scheduler is there.")  # fmt: skip
@click.option("--principal", help="Mesos principal.")
@click.option("--secret-file", type=click.Path(path_type=Path, dir_okay=False), help="File with its secret.")
@click.option("--mesos-credentials", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File with principal and secret, readable to its owner only, for agents that ask for them to read "
              "logs, and for the master unless --principal is given.")  # fmt: skip
@click.option("--default-user", help="User of jobs that name none; default: the executor's own.")
@click.option("--allow-root", type=click.Choice(ROOTS),
              help="Let jobs ask for the user root: in an image, or also on the file system of the host, where that is "
              "root of the host.")  # fmt: skip
@click.option("--users", default="", metavar="LIST", callback=_users, show_default="1000-, and the default user",
              help="Users that jobs may run as: names and ranges of uids, as alice,2000-2999; never members of docker, "
              "sudo and the like, nor root.")  # fmt: skip
@click.option("--control-access", multiple=True, metavar="NAME[@USER]=LIST", callback=_control_access,
              help="Which of api,master jobs of that name, or the app of that id, may reach, alone or as that user; "
              "others reach none; may be repeated.")  # fmt: skip
@click.option("--container-engine", default=Engine.MESOS.value, show_default=True,
              type=click.Choice([engine.value for engine in Engine]),
              help="What runs the images of jobs that name none.")  # fmt: skip
@click.option("--executor-command", help="Shell command that starts an executor on an agent.")
@click.option("--monitor-command", help="Shell command that starts a node monitor on an agent.")
@click.option(
    "--keeper-command", help="Shell command that starts what holds an agent's shared GPUs in Mesos."
)
@click.option("--report-interval", "report_interval_s", default=10.0, show_default=True,
              help="Seconds between the reports of a node monitor.")  # fmt: skip
@click.option("--unreachable-timeout", "unreachable_timeout_s", default=120.0, show_default=True,
              help="Seconds after which a job on an unreachable agent is started elsewhere.")  # fmt: skip
@click.option("--placement", type=click.Choice([choice.value for choice in Placement]),
              default=Placement.BUNDLE.value, show_default=True, help="Of jobs that ask for none.")  # fmt: skip
@click.option("--placement-of", multiple=True, metavar="APP=POLICY", callback=_placement_of,
              help="Placement of an app's jobs that ask for none; may be repeated.")  # fmt: skip
@click.option("--gpu-isolation", "isolation", type=click.Choice([choice.value for choice in Isolation]),
              default=Isolation.SHARED.value, show_default=True, envvar="MESOS_GPU_SHARE_ISOLATION",
              help="Least that will do to enforce shares of GPUs whose jobs ask for none.")  # fmt: skip
@click.option("--gpu-compute-overcommit", default="1", show_default=True, metavar="TIMES", callback=_overcommit,
              envvar="MESOS_GPU_COMPUTE_OVERCOMMIT",
              help="How often the compute of a shared GPU may be promised, from 1; its memory never is more than "
              "once.")  # fmt: skip
@click.option("--mig", type=click.Choice(MIG.values),
              help="Whether MIG instances are shares: those that operators made; also those that hosts make (dynamic); "
              "or none. Comes before MESOS_GPU_MIG of an agent.")  # fmt: skip
@click.option("--mps-percentages", type=click.Choice(MPS_PERCENTAGES.values),
              help="Percentages that shares by MPS get: those with which results were right, or any; comes before "
              "MESOS_GPU_MPS_PERCENTAGES of an agent.")  # fmt: skip
@click.option("--mps-across-users/--no-mps-across-users", default=False, show_default=True,
              envvar="MESOS_GPU_MPS_ACROSS_USERS",
              help="Let shares of several users have one server of MPS, on hosts that permit it "
              "(MESOS_GPU_MPS_USERS=all): a fault of one ends all of them.")  # fmt: skip
@click.option("--on-gpu-excess", type=click.Choice([choice.value for choice in OnExcess]),
              default=OnExcess.END.value, show_default=True, envvar="MESOS_GPU_ON_GPU_EXCESS",
              help="Of tasks that use more memory than their share: end warns before it ends them.")  # fmt: skip
@click.option("--gpu-nodes", type=click.Choice([choice.value for choice in GpuNodes]),
              default=GpuNodes.LAST.value, show_default=True,
              help="Whether work without GPUs may use nodes with some.")  # fmt: skip
@click.option("--preemption/--no-preemption", default=True, show_default=True,
              help="Whether a job may end preemptible ones of lower priority.")  # fmt: skip
@click.option("--share-linger", "cover_linger_s", default=60.0, show_default=True, type=click.FloatRange(min=0),
              help="Seconds that a GPU stays open to shares after its last one has ended.")  # fmt: skip
@click.option("--queue", "queue_limits", multiple=True, metavar="NAME=MAX_GPUS", callback=_queue_limits,
              help="Most GPUs that the jobs of a queue may hold at once; may be repeated.")  # fmt: skip
@click.option("--user-pending", default=10_000, show_default=True, type=click.IntRange(0), metavar="JOBS",
              help="Most jobs of a user that may wait at once; 0: any.")  # fmt: skip
@click.option("--queue-pending", default=20_000, show_default=True, type=click.IntRange(0), metavar="JOBS",
              help="The same of a queue.")  # fmt: skip
@click.option("--user-stored", "user_stored_mib", default=256, show_default=True, type=click.IntRange(0),
              metavar="MIB", help="Most that is kept of a user's jobs, ended ones too; 0: any.")  # fmt: skip
@click.option("--queue-stored", "queue_stored_mib", default=512, show_default=True, type=click.IntRange(0),
              metavar="MIB", help="The same of a queue.")  # fmt: skip
@click.option("--aging-step", "aging_step_s", default=3600.0, show_default=True, type=click.FloatRange(min=0),
              help="Seconds of waiting that are worth one of priority; 0: none.")  # fmt: skip
@click.option("--service-ports", default=f"{SERVICE_PORTS[0]}-{SERVICE_PORTS[-1]}", show_default=True,
              metavar="FIRST-LAST", callback=_service_ports,
              help="Service ports that apps get which leave theirs open.")  # fmt: skip
@click.option("--user-pool", default="", metavar="FIRST-LAST", callback=_user_pool,
              help="Uids of which each task of a job that names no user gets one of its own, on its host; comes before "
              "MESOS_GPU_USER_POOL of an agent.")  # fmt: skip
@click.option("--log-limit", "log_limit_mib", default=LOG_LIMIT_MIB, show_default=True, type=click.IntRange(0),
              envvar="MESOS_GPU_LOG_LIMIT", metavar="MIB",
              help="What stdout and stderr of a task may each keep; what is older is cut off. 0: all.")  # fmt: skip
@click.option("--journal", type=click.Path(path_type=Path, file_okay=False), envvar="MESOS_GPU_JOURNAL",
              help="Directory that all events and decisions are kept in, for `mesos-gpu simulate replay`.")  # fmt: skip
@click.option("--journal-size", "journal_size_mib", default=256, show_default=True, type=click.IntRange(8),
              metavar="MIB", help="Size beyond which its oldest files are removed.")  # fmt: skip
@click.option("--log-level", default="INFO", show_default=True,
              type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
              help="What goes to stderr; changes that somebody asks for always do.")  # fmt: skip
@click.option("--log-format", default=logs.LogFormat.TEXT.value, show_default=True,
              type=click.Choice([form.value for form in logs.LogFormat]),
              help="Lines for people, or one JSON object a line.")  # fmt: skip
def scheduler(
    log_level: str,
    log_format: str,
    executor_command: str | None,
    monitor_command: str | None,
    keeper_command: str | None,
    allow_root: str | None,
    control_access: Mapping[str, tuple[Control, ...]],
    users: Users,
    **rest: Any,
) -> None:
    """Run the scheduler framework against a Mesos master."""
    logs.set_up(log_level, logs.LogFormat(log_format))
    options = Options(
        executor_command=executor_command or "mesos-gpu-executor",
        monitor_command=monitor_command or "mesos-gpu-monitor",
        keeper_command=keeper_command or "mesos-gpu-keeper",
        permits=Permits(
            Root(allow_root or Root.NOWHERE), control_access, rest["default_user"], users, account_of
        ),
        **rest,
    )
    code = run(options)
    if code:
        click.get_current_context().exit(code)


def main() -> None:
    """`python -m mesos_gpu.scheduler`; errors as one line and a remedy."""
    try:
        scheduler()
    except MesosGpuError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
