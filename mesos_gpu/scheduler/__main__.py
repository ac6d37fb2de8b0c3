"""`mesos-gpu scheduler`: assemble the parts of the scheduler and run them until it is stopped."""

import contextlib
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from mesos_gpu import __version__
from mesos_gpu.adapters import credentials
from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.accounts import account_of
from mesos_gpu.adapters.audit.log import AuditLog
from mesos_gpu.adapters.clock import SystemClock
from mesos_gpu.adapters.files.private import read_secret
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.adapters.replicated.log import NotLeader
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.adapters.usage.reader import SqliteRecords
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import Server, listen
from mesos_gpu.api.http.sockets import LocalSocket
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine import events as ev
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.ids import AgentId, OfferId
from mesos_gpu.model.jobs.job import Engine
from mesos_gpu.model.jobs.permits import Control, Permits, Root
from mesos_gpu.model.jobs.users import Users
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.policy.nodes.levels import fabric_of
from mesos_gpu.ports import Store
from mesos_gpu.scheduler import logs, look_briefly
from mesos_gpu.scheduler.access.first import begin_with, read_first
from mesos_gpu.scheduler.access.restored import without_removed, without_revoked
from mesos_gpu.scheduler.control import of_api
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.delivery import archive
from mesos_gpu.scheduler.ha import run as ha
from mesos_gpu.scheduler.ha.part import DEPOSED, Part
from mesos_gpu.scheduler.happenings.deliver import Deliveries
from mesos_gpu.scheduler.happenings.handing_over import ALONE, DeliveryProgress
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.scheduler.options.cluster.flags import flags_of
from mesos_gpu.scheduler.options.options import (
    SECTIONS,
    Options,
    SchedulerCommand,
    all_options,
    engine_settings,
)
from mesos_gpu.scheduler.options.section import taken
from mesos_gpu.scheduler.proofs.composed import crowd_of, local_socket, who_asks
from mesos_gpu.scheduler.proofs.exposure import Exposure, exposed
from mesos_gpu.wire.mesos.reservations import ROLE_OF
from mesos_gpu.wire.mesos.v1 import offer_from_json, status_from_json
from mesos_gpu.wire.plain import clean_lines

logger = logging.getLogger("mesos_gpu.scheduler")
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # nosec B104 # only for messages; options choose the bound address


def translate(event: pd.DriverEvent, now: float, key: bytes = b"") -> ev.Event | None:
    """Return the engine's event for an event of the Mesos driver.

    Args:
        event: Event of the driver.
        now: Time of arrival in seconds since the epoch.
        key: Key from which the secrets of launches are derived.

    Returns:
        None for events that need no action because a status update will report the same.
    """
    match event:
        case pd.Registered():
            return ev.Registered(event.framework_id, event.master_url)
        case pd.Disconnected():
            return ev.Disconnected()
        case pd.Offers():
            return ev.OffersArrived(tuple(_readable(event.offers, now)))
        case pd.Rescinded():
            return ev.OfferRescinded(OfferId(event.offer_id))
        case pd.Update():
            return ev.StatusArrived(status_from_json(event.status, key))
        case pd.AgentFailed():
            return ev.AgentLost(AgentId(event.agent_id))
        case _:
            return None


def _readable(offers: Sequence[Mapping[str, Any]], now: float) -> Iterator[Offer]:
    """Yield the offers of a message; an unreadable offer is logged and skipped, so it affects its own agent only."""
    for offer in offers:
        try:
            yield offer_from_json(offer, now)
        except ValueError as error:
            logger.error("an offer that cannot be read is ignored: %s: %.500r", error, offer)


class Sink:
    """Receiver of driver events, called on the driver's thread; it only translates and enqueues them.

    Args:
        now: Function that returns the seconds since the epoch.
        key: Key from which the secrets of launches are derived.
        levels: Topology levels that the agents of the first offers are checked against; empty for no check.

    `daemon` is set after construction, because the daemon needs the driver first.
    """

    def __init__(self, now: Callable[[], float], key: bytes = b"", levels: Sequence[str] = ()) -> None:
        self._now, self._key, self._levels = now, key, levels
        self.daemon: Daemon | None = None

    def __call__(self, event: pd.DriverEvent) -> None:
        """Translate a driver event and put it into the daemon's queue; end the daemon on a fatal error."""
        assert self.daemon is not None, "the driver starts after the daemon is set"
        if isinstance(event, pd.FatalError):
            self._end(self.daemon, event)
            return
        try:
            translated = translate(event, self._now(), self._key)
        except Exception as error:  # Mesos would send an unreadable event again and again
            logger.exception("an event of Mesos that cannot be read is ignored: %s: %.500r", error, event)
            return
        if isinstance(translated, ev.OffersArrived) and self._levels:
            levels, self._levels = self._levels, ()
            nodes = [
                Node(offer.agent_id, offer.hostname, attributes=offer.attributes)
                for offer in translated.offers
            ]
            if (unnested := unnested_levels(levels, nodes)) is not None:
                self.daemon.fail(unnested)
                return
        if translated is not None:
            self.daemon.put(translated)

    @staticmethod
    def _end(daemon: Daemon, event: pd.FatalError) -> None:
        remedy = "nothing if another scheduler took over; otherwise start it again"
        if event.is_removed:
            daemon.put(ev.FrameworkRemoved())
            remedy = "start it again: it registers under a new framework id and continues its jobs"
        daemon.fail(MesosGpuError(f"the driver ended: {event.message}", remedy=remedy))


def run(options: Options) -> int:
    """Run until SIGTERM, SIGINT or a failure; return the exit code.

    Raises:
        MesosGpuError: A part cannot start.
    """
    with contextlib.closing(listen(options.host, options.port)) as listener:
        exposure = exposed(options, listener.getsockname()[0])
        files, signals = options.tls.files(), _Signals()

        def tls() -> ReloadedTls | None:
            return ReloadedTls(files) if files else None

        def lead(part: Part | None) -> int:
            return _run(options, listener, exposure, tls(), signals, part)

        if options.cluster.ha is None:
            return lead(None)
        settings = partial(_standby_settings, options, exposure)
        code = ha.run(options, listener, tls, signals.stop, settings, lead)
        return 1 if signals.died.is_set() else code


class _Signals:
    """Stop requests for this process: SIGTERM, SIGINT, or a thread that died. Each of them sets `stop`."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.died = _dying(self.stop)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())


def _journal(options: Options) -> Journal | None:
    if options.journal is None:
        return None
    days = options.journal_days, options.journal_keep_days
    return Journal(options.journal, options.journal_size_mib << 20, *days, options.reserve)


def _run(
    options: Options,
    listener: socket.socket,
    exposure: Exposure,
    tls: ReloadedTls | None,
    signals: _Signals,
    part: Part | None,
) -> int:
    """Run a scheduler to its end, and return the exit code; `part` is the data of a leader with standbys, else None."""
    host, port = options.host, listener.getsockname()[1]
    first = read_first(options.access_file) if options.access_file else None
    credential = credentials.read(options.mesos_credentials) if options.mesos_credentials else None
    clock = SystemClock()
    store, key = (part.store, part.key) if part else _own_store(options)
    trail = AuditLog(options.audit.settings(options.state), version=__version__)
    saved = without_revoked(store.load(), store, trail)
    levels = () if part else options.levels  # a scheduler that takes over warns
    if (unnested := unnested_levels(levels, saved.nodes)) is not None:
        raise unnested
    secrets = options.secrets.store()
    own_url = part.url if part else f"{'https' if tls else 'http'}://{_reachable(host)}:{port}"
    webui_url = options.webui_url or own_url
    framework = _framework(options, webui_url, saved.framework_id, credential)
    sink = Sink(clock.now, key, () if saved.nodes else levels)
    mesos_tls = options.mesos_tls.context(options.master)
    login = _credential(options, credential)
    driver = pd.PymesosDriver(framework, options.master, sink, **login, tls=mesos_tls)
    settings = engine_settings(options).changed(
        control_ports=of_api(host, port),
        principal=framework.principal,
        scheduler_url=(options.uploads.executor_url or webui_url).rstrip("/"),
    )
    daemon = Daemon(store, saved, driver, clock, settings, _journal(options), key, secrets, options.checks)
    sink.daemon = daemon
    hooks, sender = options.webhooks.store(options.state), options.webhooks.sender()
    if saved.doubtful:
        without_removed(hooks, trail)
    progress = DeliveryProgress(hooks, saved, part.url if part else ALONE)
    deliveries = _deliveries(hooks, sender, daemon, progress)
    who = who_asks(options, daemon)
    api = replace(
        _api_settings(options, webui_url, credential, mesos_tls, exposure, tls, trail, who),
        uploads=options.uploads.store(options.state, options.reserve),
        hooks=hooks,
        sender=sender,
        task_key=lambda: key,
        own_url=(options.uploads.executor_url or own_url).rstrip("/"),
        own_url_is_told=options.uploads.executor_url is not None,
        peers=part.peers if part else None,
        leader_url=part.url if part else "",
    )
    app = create_app(daemon, api, part.outer if part else ())
    local = local_socket(options)
    server = Server(app, listener, crowd=crowd_of(options), tls=tls, local=local)
    if tls:
        signal.signal(signal.SIGHUP, lambda *_: tls.wake())
    _announce(exposure, port, tls, local)
    parts = _Parts(trail, hooks, deliveries, daemon, server)
    parts.run(first, lambda: signals.stop.is_set() or (part is not None and part.is_over()))
    failed = signals.died.is_set() or daemon.failure is not None
    return DEPOSED if isinstance(daemon.failure, NotLeader) else int(failed)


class _Parts(NamedTuple):
    """Components that run concurrently in a leading scheduler. `server` answers from its construction on."""

    trail: AuditLog
    hooks: HookStore
    deliveries: Deliveries
    daemon: Daemon
    server: Server

    def run(self, first: AccessDocument | None, is_over: Callable[[], bool]) -> None:
        """Start the components, wait until `is_over` returns true or the daemon ends, then stop them all.

        Args:
            first: Access document of `--access-file`, applied as the first version; None without that option.
            is_over: Function that returns whether to stop.
        """
        self.deliveries.start()
        look_briefly()
        self.daemon.start()
        try:
            if first is not None:
                begin_with(first, self.daemon)
            while not (is_over() or self.daemon.wait(0.2)):
                pass
        finally:
            self.server.stop()
            self.daemon.stop()
            self.deliveries.stop()
            self.hooks.close()
            self.trail.close()


def _deliveries(
    hooks: HookStore, sender: Sender, daemon: Daemon, handed_over: DeliveryProgress
) -> Deliveries:
    """Create the webhook sender, which also sends events that a former leader left unsent."""
    deliveries = Deliveries(hooks, sender, daemon.happened, handed_over=handed_over)
    handed_over.begin(daemon.keep)
    return deliveries


def _standby_settings(options: Options, exposure: Exposure, who: Who | None) -> ApiSettings:
    """Return the settings of the REST interface while this scheduler stands by and only reads the state."""
    return _api_settings(options, options.webui_url or "", None, None, exposure, None, None, who)


def unnested_levels(levels: Sequence[str], nodes: Sequence[Node]) -> BadConfiguration | None:
    """Return an error if the groups of topology levels are not nested on some nodes; None if all are."""
    problem = fabric_of(levels, nodes).problem
    if not problem:
        return None
    remedy = (
        "correct the agents' attributes so that groups of each level lie within groups of the level above"
    )
    return BadConfiguration(f"--topology {','.join(levels)}: {problem}", remedy=remedy)


def _own_store(options: Options) -> tuple[Store, bytes]:
    """Open the state of a scheduler without standbys; return it and the key of its launch secrets."""
    store = SqliteStore(options.state, accept_older=options.accept_older_state)
    return store, store.key()


def _announce(exposure: Exposure, port: int, tls: ReloadedTls | None, local: LocalSocket | None) -> None:
    """Log the addresses of the REST interface, and warnings about its exposure and certificate."""
    where = _where(exposure.address, port, "https" if tls else "http")
    logger.info("REST interface and dashboard on %s", where)
    if local:
        logger.info("callers on this host can prove their Unix user at %s", local.path)
    for warning in [*exposure.warnings, *([tls.state.problem] if tls and tls.state.problem else [])]:
        logger.warning("%s", warning)


def _api_settings(
    options: Options,
    webui_url: str,
    credential: credentials.Credential | None,
    agent_tls: ssl.SSLContext | None,
    exposure: Exposure,
    tls: ReloadedTls | None,
    audit: AuditLog | None,
    who: Who | None,
) -> ApiSettings:
    """Return the settings of the REST interface, for a leader or a standby."""
    return ApiSettings(
        webui_url=webui_url,
        version=__version__,
        host_names=(
            *options.allowed_hosts,
            urlsplit(webui_url).hostname or "",
            urlsplit(options.uploads.executor_url or "").hostname or "",
            urlsplit(options.cluster.ha_url or "").hostname or "",
        ),
        permits=replace(options.permits, secrets=options.secrets.enabled),
        agent_authorization=credential.header if credential else "",
        agent_tls=agent_tls,
        container_engine=Engine(options.container_engine),
        service_ports=options.service_ports,
        open_to_all=exposure.open_to_all,
        tls=tls,
        has_user_pool=bool(options.user_pool),
        limits=options.limits,
        audit=audit,
        records=SqliteRecords(options.state),
        longest_token_s=options.longest_token_days * 86400.0,
        who=who,
        flags=options.flags,
    )


def _dying(stop: threading.Event) -> threading.Event:
    """Return an event that is set when any thread dies, together with `stop`.

    The process then ends and its supervisor restarts it: a scheduler without one of its threads would look alive.
    """
    died = threading.Event()

    def report(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "?"
        logger.critical(
            "thread %s died, so the scheduler exits; restart it and report this error: %r",
            name,
            args.exc_value,
            exc_info=args.exc_value,
        )
        died.set()
        stop.set()

    threading.excepthook = report
    return died


def _framework(
    options: Options, webui_url: str, framework_id: str | None, credential: credentials.Credential | None
) -> pd.FrameworkSettings:
    """Return the registration of the framework at Mesos."""
    return pd.FrameworkSettings(
        user=options.user,
        name=options.name,
        roles=(options.role, *options.role_of.values()),
        webui_url=webui_url,
        hostname=socket.gethostname(),
        failover_timeout_s=options.failover_timeout_s,
        checkpoint=True,
        framework_id=framework_id,
        principal=options.principal or (credential.principal if credential else None),
        labels={f"{ROLE_OF}{queue}": role for queue, role in options.role_of.items()},
    )


def _where(address: str, port: int, scheme: str) -> str:
    """Return a description of the listening address for the log."""
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    every = f"every address of this host, port {port} ({scheme})"
    return every if address in _EVERY_ADDRESS else f"{scheme}://{shown}"


def _reachable(host: str) -> str:
    return socket.gethostname() if host in (*_EVERY_ADDRESS, "") else host


def _credential(options: Options, of_file: credentials.Credential | None) -> dict[str, Any]:
    if options.principal is None and of_file:
        return {"principal": of_file.principal, "secret": of_file.secret}
    if options.principal is None or options.secret_file is None:
        return {}
    return {"principal": options.principal, "secret": read_secret(options.secret_file, "secret", links=False)}


@click.command(cls=SchedulerCommand, context_settings={"help_option_names": ["-h", "--help"]})
@all_options
def scheduler(
    log_level: str,
    log_format: str,
    executor_archive: str | None,
    allow_root: str | None,
    control_access: Mapping[str, tuple[Control, ...]],
    users: Users,
    same_accounts: bool,
    host_networks: tuple[str, ...],
    **rest: Any,
) -> None:
    """Run the scheduler framework against a Mesos master."""
    logs.set_up(log_level, logs.LogFormat(log_format))
    context = click.get_current_context()
    options = Options(
        permits=Permits(
            Root(allow_root or Root.NOWHERE),
            control_access,
            rest["default_user"],
            users,
            account_of,
            same_accounts=same_accounts,
            host_networks=host_networks,
        ),
        flags=tuple(flags_of(context.command, context)),
        **taken(SECTIONS, rest | _commands(executor_archive, rest)),
    )
    code = run(options)
    if code:
        context.exit(code)


def _commands(place: str | None, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the commands that start the programs on agents: by options, else of the archive, else by name."""
    return {
        f"{program}_command": given[f"{program}_command"]
        or (archive.command(place, program) if place else f"mesos-gpu-{program}")
        for program in archive.PROGRAMS
    }


def main() -> None:
    """Run `python -m mesos_gpu.scheduler`; print an error as one line with its remedy."""
    try:
        scheduler()
    except MesosGpuError as error:
        click.echo(f"Error: {clean_lines(str(error))}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
