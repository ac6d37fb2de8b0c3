"""The ASGI application of the REST interface: docs/reference/rest.md as routes."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware

from mesos_gpu.api.channel.channels import Channels
from mesos_gpu.api.channel.kept import KeptFiles
from mesos_gpu.api.channel.opening import Opening
from mesos_gpu.api.channel.relay import Relay
from mesos_gpu.api.http.answers import on_defect, on_known, on_route
from mesos_gpu.api.http.audit import Audit
from mesos_gpu.api.http.authenticate import Authenticate
from mesos_gpu.api.http.guard import Guard
from mesos_gpu.api.http.rate import Rate, UnauthenticatedLimit
from mesos_gpu.api.http.standing import ShutdownAnswers
from mesos_gpu.api.login.ways import login_routes
from mesos_gpu.api.marathon.events import Events
from mesos_gpu.api.marathon.routes import routes
from mesos_gpu.api.metrics.http import Timed
from mesos_gpu.api.routes import channel_routes, v1_routes
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.v1.jobs import Jobs
from mesos_gpu.errors import MesosGpuError


def create_app(scheduler: SchedulerApi, settings: ApiSettings, outer: Sequence[Middleware] = ()) -> Starlette:
    """Return the application that serves a scheduler. `outer`: middleware that requests pass first."""
    jobs, events, channels = Jobs(scheduler, settings), Events(scheduler), Channels()
    opening = Opening(scheduler, settings, channels, jobs.changes)
    all_routes = [
        *v1_routes(scheduler, settings, jobs),
        *channel_routes(opening, KeptFiles(scheduler, opening)),
        *login_routes(settings.who),
        *routes(scheduler, events, settings),
    ]
    unnamed = UnauthenticatedLimit(settings.limits, all_routes, jobs.uploads.has_pass)
    app = Starlette(
        routes=all_routes,
        middleware=[
            *outer,
            Middleware(Relay, channels=channels, names=_host_names(settings)),
            Middleware(Timed, figures=settings.figures),
            Middleware(Audit, trail=settings.audit),
            Middleware(ShutdownAnswers),
            Middleware(Guard, names=settings.host_names),
            _authenticate(scheduler, settings, unnamed),
            Middleware(Rate, limits=settings.limits),
        ],
        lifespan=jobs.lifespan,
        exception_handlers={MesosGpuError: on_known, 404: on_route, 405: on_route, Exception: on_defect},
    )
    # A redirect would name http:// where a proxy in front speaks TLS: a client would then send its token in the clear.
    app.router.redirect_slashes = False
    app.state.changes, app.state.events, app.state.leaving = jobs.changes, events, False
    app.state.unnamed = unnamed  # for requests that a standby forwards, which count, too
    return app


def _host_names(settings: ApiSettings) -> list[str]:
    """Return the names of this host; executors use the host of `own_url`, which calls to them contain."""
    own = urlsplit(settings.own_url).hostname
    return [*settings.host_names, *([own] if own else [])]


def _authenticate(
    scheduler: SchedulerApi, settings: ApiSettings, unnamed: UnauthenticatedLimit
) -> Middleware:
    """Return the middleware that authenticates callers; without `settings.who` authentication is off."""
    who = settings.who
    if who is None:
        return Middleware(Authenticate, document=lambda: scheduler.access, identify=settings.identify)
    return Middleware(
        Authenticate,
        document=lambda: scheduler.access,
        identify=who.identify,
        stands=who.stands,
        challenges=who.challenges,
        unnamed=unnamed,
    )
