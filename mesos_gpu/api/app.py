"""The REST interface: docs/reference/rest.md as routes."""

from starlette.applications import Starlette
from starlette.middleware import Middleware

from mesos_gpu.api.http.answers import on_defect, on_known, on_route
from mesos_gpu.api.http.audit import Audit
from mesos_gpu.api.http.authenticate import Authenticate
from mesos_gpu.api.http.guard import Guard
from mesos_gpu.api.http.rate import Rate
from mesos_gpu.api.login.ways import login_routes
from mesos_gpu.api.marathon.events import Events
from mesos_gpu.api.marathon.routes import routes
from mesos_gpu.api.routes import v1_routes
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.system import System
from mesos_gpu.api.v1.access.documents import Documents
from mesos_gpu.api.v1.access.tokens import TokenHandlers
from mesos_gpu.api.v1.audit import AuditHandlers
from mesos_gpu.api.v1.jobs import Jobs
from mesos_gpu.api.v1.operate import Operate
from mesos_gpu.api.v1.plan import Plans
from mesos_gpu.api.v1.resizes import Resizes
from mesos_gpu.api.v1.services import ServiceHandlers
from mesos_gpu.api.v1.unknown import UnknownTasks
from mesos_gpu.errors import MesosGpuError


def create_app(scheduler: SchedulerApi, settings: ApiSettings) -> Starlette:
    """The application over a scheduler."""
    jobs, operate, plans = Jobs(scheduler, settings), Operate(scheduler), Plans(scheduler)
    resizes = Resizes(scheduler, jobs.changes)
    services, events, unknown = ServiceHandlers(scheduler), Events(scheduler), UnknownTasks(scheduler)
    app = Starlette(
        routes=[
            *v1_routes(
                jobs,
                System(scheduler, settings),
                operate,
                plans,
                resizes,
                Documents(scheduler),
                TokenHandlers(scheduler, settings.longest_token_s),
                services,
                unknown,
                AuditHandlers(scheduler, settings.audit),
            ),
            *login_routes(settings.who),
            *routes(
                scheduler,
                events,
                service_ports=settings.service_ports,
                permits=settings.permits,
                webui_url=settings.webui_url,
                version=settings.version,
                pooled=settings.has_user_pool,
            ),
        ],
        middleware=[
            Middleware(Audit, trail=settings.audit),
            Middleware(Guard, names=settings.host_names),
            _authenticate(scheduler, settings),
            Middleware(Rate, limits=settings.limits),
        ],
        lifespan=jobs.lifespan,
        exception_handlers={MesosGpuError: on_known, 404: on_route, 405: on_route, Exception: on_defect},
    )
    app.state.changes, app.state.events = jobs.changes, events
    return app


def _authenticate(scheduler: SchedulerApi, settings: ApiSettings) -> Middleware:
    who = settings.who
    if who is None:
        return Middleware(Authenticate, document=lambda: scheduler.access, identify=settings.identify)
    return Middleware(
        Authenticate,
        document=lambda: scheduler.access,
        identify=who.identify,
        stands=who.stands,
        challenges=who.challenges,
    )
