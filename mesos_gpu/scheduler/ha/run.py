"""Standby, then leader: one process with one listening socket."""

import contextlib
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final, cast

from starlette.middleware import Middleware

from mesos_gpu.adapters.replicated.log import NotLeader
from mesos_gpu.adapters.replicated.store import since_boot
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import Server
from mesos_gpu.api.http.standing import ShutdownAnswers
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.standby import standby
from mesos_gpu.api.standby.heard import ForwardedRequests
from mesos_gpu.api.standby.led import Led
from mesos_gpu.api.standby.lines import Lines
from mesos_gpu.api.standby.passing import Forwarder
from mesos_gpu.api.standby.word import Signer, Verifier
from mesos_gpu.api.v1.files.uploads import needed_archives
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.scheduler.ha.archives import Archives
from mesos_gpu.scheduler.ha.copy import Copy
from mesos_gpu.scheduler.ha.member import Member
from mesos_gpu.scheduler.ha.part import DEPOSED, Part
from mesos_gpu.scheduler.options.options import Options, engine_settings
from mesos_gpu.scheduler.proofs.composed import crowd_of, local_socket, who_asks

logger = logging.getLogger("mesos_gpu.scheduler")
_TENDED_S: Final = 10.0  # maximum wait for the last check of the election at the end
Settings = Callable[[Who | None], ApiSettings]
Tls = Callable[[], ReloadedTls | None]
Lead = Callable[[Part], int]


def run(
    options: Options,
    listener: socket.socket,
    tls: Tls,
    stop: threading.Event,
    settings: Settings,
    lead: Lead,
) -> int:
    """Run as a standby until elected, then lead, until `stop` is set or this scheduler is deposed; return the exit
    code.

    Args:
        options: Options of the command line, with `cluster.ha`.
        listener: Socket on which the interface is served; it stays open.
        tls: Function that creates the TLS settings of the standby's interface.
        stop: Event that ends the run.
        settings: Function that returns the interface's settings for an authenticator.
        lead: Function that runs the leader and returns the exit code.

    Raises:
        MesosGpuError: A part cannot start, or the state cannot follow the log.
    """
    assert options.cluster.ha is not None, "the caller has checked"
    url = options.cluster.url(options.host, listener.getsockname()[1], tls=options.tls.tls_cert is not None)
    if options.accept_older_state:
        raise BadConfiguration(
            "--accept-older-state has no effect with --ha: the log in ZooKeeper decides what is newest",
            remedy="remove one of the two options; to restore a backup see docs/runbook.md",
        )
    anew = options.cluster.ha_begin_anew
    with contextlib.closing(Member(options.cluster.ha, url, options.state, begins_anew=anew)) as member:
        while not stop.is_set():
            with _serving(options, listener, tls, member, settings) as copy:
                logger.info("this scheduler is a standby, its address is %s", url)
                elected = member.follow(copy, stop)
            store = member.take(stop) if elected else None
            if store is None:
                continue
            logger.warning("this scheduler was elected leader")
            key = store.key()
            heard = Middleware(ForwardedRequests, verifier=Verifier(key, member.election.run))
            led = Middleware(Led, unsure_s=member.unsure_s, clock=since_boot)
            part = Part(store, key, member, url, [led, heard], lambda: member.is_over)
            with _tended(member):
                return exit_code(member, partial(lead, part))
    return 0


def exit_code(member: Member, lead: Callable[[], int]) -> int:
    """Call `lead` and return the exit code, `DEPOSED` if another scheduler leads now.

    Any error of a deposed leader counts as deposition: a leader that just began may be unable to write, or wait for an
    answer that never comes.

    Raises:
        Exception: Raised by `lead` while this scheduler still leads.
    """
    try:
        code = lead()
    except Exception as error:
        if not (isinstance(error, NotLeader) or member.was_deposed()):
            raise
        logger.warning(
            "another scheduler leads now, so this one exits: %s",
            error,
            exc_info=not isinstance(error, MesosGpuError),
        )
        return DEPOSED
    return DEPOSED if member.is_over or (code and member.was_deposed()) else code


@contextlib.contextmanager
def _tended(member: Member) -> Iterator[None]:
    """Check on a thread that this scheduler still leads, while the body runs."""
    done = threading.Event()
    thread = threading.Thread(target=member.tend, args=(done,), name="election", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_TENDED_S)


@contextlib.contextmanager
def _serving(
    options: Options, listener: socket.socket, tls: Tls, member: Member, settings: Settings
) -> Iterator[Copy]:
    """Serve reads from the copy and forward all else to the leader, while the body runs."""
    copy = Copy(member.local, engine_settings(options))
    api = cast(SchedulerApi, copy)  # methods that `Copy` lacks are never called: such requests are forwarded
    who = who_asks(options, api)
    given = replace(settings(who), peers=member, leader_url="", task_key=lambda: member.key)
    served = tls()
    context = options.cluster.context(options.tls.tls_cert, options.tls.tls_key) if served else None
    passing = _standby(options, member, copy, who, given, context)
    app = create_app(api, given, [Middleware(ShutdownAnswers), passing])  # without an audit log of its own
    if served:
        signal.signal(signal.SIGHUP, lambda *_: served.wake())
    archives = Archives(
        options.uploads.store(options.state, options.reserve, is_copy=True),
        lambda: copy.read(needed_archives).result(),
        lambda: member.leader,
        lambda: member.key,
        context,
    )
    crowd = crowd_of(options)
    server = Server(app, listener.dup(), crowd=crowd, tls=served, local=local_socket(options))
    try:
        yield copy
    finally:
        archives.stop()
        server.stop()
        copy.close()


def _standby(
    options: Options,
    member: Member,
    copy: Copy,
    who: Who | None,
    given: ApiSettings,
    context: ssl.SSLContext | None,
) -> Middleware:
    """Return the middleware that answers reads from the copy and forwards other requests to the leader."""
    proof = options.authentication
    proved_by = [header for header in (proof.proxy_user_header, proof.proxy_groups_header) if header]
    return Middleware(
        standby.Standby,
        passing=Forwarder(lambda: member.leader, Signer(lambda: member.key), who, context, proved_by),
        lines=Lines(lambda: member.leader, given.host_names, context),
        copy=standby.Copy(copy.age_s, copy.knows),
        leader=lambda: member.leader,
        names=given.host_names,
        asks_names=who is not None,
    )
