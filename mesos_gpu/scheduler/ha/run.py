"""Stand by, then lead: one process, one listening socket."""

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

from mesos_gpu.adapters.replicated.log import Deposed
from mesos_gpu.adapters.replicated.store import since_boot
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.api.app import create_app
from mesos_gpu.api.http.server import Server
from mesos_gpu.api.http.standing import Leaving
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.standby import standby
from mesos_gpu.api.standby.heard import Heard
from mesos_gpu.api.standby.led import Led
from mesos_gpu.api.standby.lines import Lines
from mesos_gpu.api.standby.passing import Passing
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
_TENDED_S: Final = 10.0  # that the last look at the election may take, when all else has ended
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
    """Run until `stop` is set, or another leads after this one did; the exit code.

    Args:
        options: With a place where schedulers meet.
        listener: On which the interface is served; it stays open.
        tls: Makes that of what is served while this one stands by.
        stop: Set from outside.
        settings: Of the interface, by who is asked.
        lead: Runs as the leader until that is over; the exit code.

    Raises:
        MesosGpuError: A part cannot start; the state cannot follow the log.
    """
    assert options.cluster.ha is not None, "the caller has looked"
    url = options.cluster.url(options.host, listener.getsockname()[1], tls=options.tls.tls_cert is not None)
    if options.accept_older_state:
        raise BadConfiguration(
            "--accept-older-state is nothing with --ha: the log in ZooKeeper says what is the newest",
            remedy="leave one of the two out; docs/runbook.md says how a backup is brought back",
        )
    anew = options.cluster.ha_begin_anew
    with contextlib.closing(Member(options.cluster.ha, url, options.state, begins_anew=anew)) as member:
        while not stop.is_set():
            with _serving(options, listener, tls, member, settings) as copy:
                logger.info("this scheduler stands by at %s", url)
                elected = member.follow(copy, stop)
            store = member.take(stop) if elected else None
            if store is None:
                continue
            logger.warning("this scheduler leads: it was elected")
            key = store.key()
            heard = Middleware(Heard, verifier=Verifier(key, member.election.run))
            led = Middleware(Led, unsure_s=member.unsure_s, clock=since_boot)
            part = Part(store, key, member, url, [led, heard], lambda: member.is_over)
            with _tended(member):
                return exit_code(member, partial(lead, part))
    return 0


def exit_code(member: Member, lead: Callable[[], int]) -> int:
    """Lead until that is over; the exit code. What ends because another leads is deposed, however it ends: one that has
    only begun may not be able to write, or wait for an answer in vain.

    Raises:
        As `lead`, while this one leads still.
    """
    try:
        code = lead()
    except Exception as error:
        if not (isinstance(error, Deposed) or member.was_deposed()):
            raise
        logger.warning(
            "another leads, and this scheduler ends: %s", error, exc_info=not isinstance(error, MesosGpuError)
        )
        return DEPOSED
    return DEPOSED if member.is_over or (code and member.was_deposed()) else code


@contextlib.contextmanager
def _tended(member: Member) -> Iterator[None]:
    """See on a thread of its own that this one still leads."""
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
    """Serve the copy, and send on what is not of it."""
    copy = Copy(member.local, engine_settings(options))
    api = cast(SchedulerApi, copy)  # what it lacks is refused, and never asked for: it is sent on
    who = who_asks(options, api)
    given = replace(settings(who), peers=member, leader_url="", task_key=lambda: member.key)
    served = tls()
    context = options.cluster.context(options.tls.tls_cert, options.tls.tls_key) if served else None
    passing = _standby(options, member, copy, who, given, context)
    app = create_app(api, given, [Middleware(Leaving), passing])  # which has no audit of its own
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
    proof = options.authentication
    proved_by = [each for each in (proof.proxy_user_header, proof.proxy_groups_header) if each]
    return Middleware(
        standby.Standby,
        passing=Passing(lambda: member.leader, Signer(lambda: member.key), who, context, proved_by),
        lines=Lines(lambda: member.leader, given.host_names, context),
        copy=standby.Copy(copy.age_s, copy.knows),
        leader=lambda: member.leader,
        names=given.host_names,
        asks_names=who is not None,
    )
