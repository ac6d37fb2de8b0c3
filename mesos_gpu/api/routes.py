"""Routes of /v1 and of the dashboard, each with the authentication and the right that it needs."""

from starlette.routing import Route

from mesos_gpu.access.rights import (
    ACCESS_SEE,
    ACCESS_WRITE,
    APP_SEE,
    APP_WRITE,
    AUDIT_SEE,
    BOOKING_SEE,
    BOOKING_WRITE,
    CLUSTER_SEE,
    GPU_DRAIN,
    GPU_RESET,
    GPU_SEE,
    JOB_CHECKPOINT,
    JOB_EXEC,
    JOB_KEEP,
    JOB_KILL,
    JOB_OUTPUT,
    JOB_READ,
    JOB_RESIZE,
    JOB_RUN,
    JOB_SEE,
    METRICS_SEE,
    NODE_DRAIN,
    NODE_SEE,
    PLAN_SEE,
    QUEUE_SEE,
    QUEUE_WRITE,
    SERVICE_SEE,
    SERVICE_WRITE,
    TASK_SEE,
    TASK_WRITE,
    TOKEN_CREATE,
    TOKEN_REVOKE,
    TOKEN_SEE,
    WEBHOOK_SEE,
    WEBHOOK_WRITE,
)
from mesos_gpu.api.channel.kept import KeptFiles
from mesos_gpu.api.channel.opening import Opening
from mesos_gpu.api.http.rights import free, judged, named, needs, route
from mesos_gpu.api.kept import Kept
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.scrape import Scrape
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.system import System
from mesos_gpu.api.v1.access.documents import AccessDocuments
from mesos_gpu.api.v1.access.tokens import TokenHandlers
from mesos_gpu.api.v1.apps.templates import TemplateHandlers
from mesos_gpu.api.v1.audit import AuditHandlers
from mesos_gpu.api.v1.cards import CardHandlers, card_map
from mesos_gpu.api.v1.files.uploads import Uploads
from mesos_gpu.api.v1.files.volumes import NamedVolumes
from mesos_gpu.api.v1.gpus.programs import UpgradeHandlers
from mesos_gpu.api.v1.jobs import Jobs
from mesos_gpu.api.v1.operate import GpuNodeHandlers
from mesos_gpu.api.v1.plan import Plans
from mesos_gpu.api.v1.queues.documents import QueueDocuments
from mesos_gpu.api.v1.queues.shares import QueueShares
from mesos_gpu.api.v1.queues.why import QueueWhys
from mesos_gpu.api.v1.resizes import Resizes
from mesos_gpu.api.v1.services import ServiceHandlers
from mesos_gpu.api.v1.tenancy.bookings import BookingHandlers
from mesos_gpu.api.v1.tenancy.budgets import BudgetHandlers
from mesos_gpu.api.v1.tenancy.events import EventHandlers
from mesos_gpu.api.v1.tenancy.history import HistoryHandlers
from mesos_gpu.api.v1.tenancy.hooks import HookHandlers
from mesos_gpu.api.v1.tenancy.keeps import IdleProtectionHandlers
from mesos_gpu.api.v1.tenancy.usage import UsageHandlers
from mesos_gpu.api.v1.unknown import UnknownTasks


def v1_routes(scheduler: SchedulerApi, settings: ApiSettings, jobs: Jobs) -> list[Route]:
    """Return all routes of /v1, of metrics and of the dashboard, but those of channels."""
    cards = Kept(card_map)  # cached: thousands of GPUs, requested by many pages
    operate, audit = GpuNodeHandlers(scheduler, cards), AuditHandlers(scheduler, settings.audit)
    tokens = TokenHandlers(scheduler, settings.longest_token_s)
    return [
        *_job_routes(
            jobs, Resizes(scheduler, jobs.changes), IdleProtectionHandlers(scheduler), Plans(scheduler), audit
        ),
        route("/v1/history", GET=judged(JOB_SEE, HistoryHandlers(scheduler, settings.records).list)),
        route("/v1/events", GET=judged(JOB_SEE, EventHandlers(scheduler, jobs.changes).list)),
        *_booking_routes(BookingHandlers(scheduler)),
        *_webhook_routes(HookHandlers(scheduler, settings.hooks, settings.sender)),
        *_file_routes(jobs.uploads, NamedVolumes(scheduler)),
        *_queue_routes(QueueDocuments(scheduler), QueueShares(scheduler), QueueWhys(scheduler)),
        route("/v1/cards", GET=needs(GPU_SEE, CardHandlers(scheduler, cards).list)),
        *_node_routes(operate, audit),
        *_service_routes(ServiceHandlers(scheduler)),
        *_template_routes(TemplateHandlers()),
        *_task_routes(jobs, UnknownTasks(scheduler)),
        *_access_routes(AccessDocuments(scheduler), tokens, audit),
        *_usage_routes(UsageHandlers(scheduler, settings.records), BudgetHandlers(scheduler)),
        *_scheduler_routes(
            System(scheduler, settings, lambda view: cards.of(view).counted),
            Scrape(scheduler, settings),
            UpgradeHandlers(scheduler, settings),
        ),
    ]


def _job_routes(
    jobs: Jobs, resizes: Resizes, keeps: IdleProtectionHandlers, plans: Plans, audit: AuditHandlers
) -> list[Route]:
    return [
        route("/v1/jobs", GET=judged(JOB_SEE, jobs.list), POST=judged(JOB_RUN, jobs.submit)),
        route(
            "/v1/jobs/{id}",
            GET=judged(JOB_SEE, jobs.show),
            PATCH=judged(JOB_RESIZE, resizes.resize),
            DELETE=judged(JOB_KILL, jobs.kill),
        ),
        route("/v1/jobs/{id}/resize", DELETE=judged(JOB_RESIZE, resizes.withdraw)),
        route(
            "/v1/jobs/{id}/keep",
            PUT=judged(JOB_KEEP, keeps.keep),
            DELETE=judged(JOB_KEEP, keeps.withdraw),
        ),
        route("/v1/jobs/{id}/checkpoint", POST=judged(JOB_CHECKPOINT, jobs.checkpoint)),
        route("/v1/jobs/{id}/tasks", GET=judged(JOB_SEE, jobs.tasks_of)),
        route("/v1/jobs/{id}/command", GET=judged(JOB_READ, jobs.command)),
        route("/v1/jobs/{id}/use", GET=judged(JOB_SEE, jobs.use)),
        route("/v1/jobs/{id}/logs", GET=judged(JOB_OUTPUT, jobs.logs)),
        route("/v1/jobs/{id}/changes", GET=judged(JOB_SEE, audit.of_job)),
        route("/v1/arrays/{id}", GET=judged(JOB_SEE, jobs.array)),
        route("/v1/why/{id}", GET=judged(JOB_SEE, jobs.why)),
        route("/v1/queue", GET=judged(QUEUE_SEE, jobs.queue)),
        route("/v1/plan/jobs", POST=judged(JOB_RUN, jobs.plan)),
        route("/v1/plan/defrag", POST=needs(PLAN_SEE, plans.for_request)),
        route("/v1/plan/defrag/{id}", GET=needs(PLAN_SEE, plans.for_job)),
    ]


def _booking_routes(bookings: BookingHandlers) -> list[Route]:
    return [
        route(
            "/v1/bookings",
            GET=judged(BOOKING_SEE, bookings.list),
            POST=judged(BOOKING_WRITE, bookings.make),
        ),
        route(
            "/v1/bookings/{id}",
            GET=judged(BOOKING_SEE, bookings.show),
            PUT=judged(BOOKING_WRITE, bookings.change),
            DELETE=judged(BOOKING_WRITE, bookings.cancel),
        ),
    ]


def _webhook_routes(hooks: HookHandlers) -> list[Route]:
    return [
        route("/v1/webhooks", GET=needs(WEBHOOK_SEE, hooks.list)),
        route("/v1/webhook-versions", GET=needs(WEBHOOK_SEE, hooks.versions)),
        route(
            "/v1/webhooks/{name}",
            GET=needs(WEBHOOK_SEE, hooks.show),
            PUT=needs(WEBHOOK_WRITE, hooks.put),
            DELETE=needs(WEBHOOK_WRITE, hooks.delete),
        ),
        route("/v1/webhooks/{name}/test", POST=needs(WEBHOOK_WRITE, hooks.test)),
        route("/v1/webhooks/{name}/dead", GET=needs(WEBHOOK_SEE, hooks.dead)),
        route("/v1/webhooks/{name}/retry", POST=needs(WEBHOOK_WRITE, hooks.retry)),
    ]


def _file_routes(uploads: Uploads, volumes: NamedVolumes) -> list[Route]:
    return [
        route("/v1/uploads", GET=judged(JOB_RUN, uploads.list)),
        route(
            "/v1/uploads/{sha256}",
            GET=judged(JOB_RUN, uploads.show),
            PUT=judged(JOB_RUN, uploads.put),
            DELETE=judged(JOB_RUN, uploads.remove),
        ),
        route("/v1/uploads/{sha256}/archive", GET=free(uploads.archive)),
        route("/v1/volumes", GET=judged(JOB_SEE, volumes.list)),
        route("/v1/volumes/{name}", DELETE=judged(JOB_KILL, volumes.remove)),
    ]


def channel_routes(opening: Opening, kept: KeptFiles) -> list[Route]:
    """Return the routes into tasks: running commands, reading and writing files, and forwarding ports."""
    return [
        route("/v1/jobs/{id}/exec", POST=judged(JOB_EXEC, opening.open)),
        route(
            "/v1/jobs/{id}/files",
            GET=judged(JOB_EXEC, kept.read),
            POST=judged(JOB_EXEC, opening.files),
        ),
        route("/v1/jobs/{id}/forward", POST=judged(JOB_EXEC, opening.forward)),
    ]


def _queue_routes(queues: QueueDocuments, shares: QueueShares, whys: QueueWhys) -> list[Route]:
    return [
        route("/v1/queues", GET=judged(QUEUE_SEE, queues.show), PUT=needs(QUEUE_WRITE, queues.put)),
        route(
            "/v1/queues/{queue:path}",
            GET=judged(QUEUE_SEE, queues.show_one),
            PUT=needs(QUEUE_WRITE, queues.put_one),
            PATCH=needs(QUEUE_WRITE, queues.patch_one),
            DELETE=needs(QUEUE_WRITE, queues.delete_one),
        ),
        route("/v1/plan/queues", POST=needs(QUEUE_WRITE, queues.plan)),
        route("/v1/queue-shares", GET=judged(QUEUE_SEE, shares.list)),
        route("/v1/queue-shares/{queue:path}", GET=judged(QUEUE_SEE, shares.show)),
        route("/v1/queue-why/{queue:path}", GET=judged(QUEUE_SEE, whys.show)),
        route("/v1/queue-versions", GET=needs(QUEUE_SEE, queues.versions)),
        route("/v1/queue-versions/{version}", GET=needs(QUEUE_SEE, queues.version)),
    ]


def _node_routes(operate: GpuNodeHandlers, audit: AuditHandlers) -> list[Route]:
    return [
        route("/v1/use", GET=needs(GPU_SEE, operate.use)),
        route("/v1/gpus", GET=needs(GPU_SEE, operate.gpus)),
        route("/v1/gpus/{id}", GET=needs(GPU_SEE, operate.gpu)),
        route(
            "/v1/gpus/{id}/drain",
            POST=needs(GPU_DRAIN, operate.drain_gpu),
            DELETE=needs(GPU_DRAIN, operate.undrain_gpu),
        ),
        route("/v1/gpus/{id}/use", GET=needs(GPU_SEE, operate.gpu_use)),
        route("/v1/gpus/{id}/changes", GET=needs(GPU_SEE, audit.of_gpu)),
        route("/v1/gpus/{id}/reset", POST=needs(GPU_RESET, operate.reset_gpu)),
        route("/v1/nodes", GET=needs(NODE_SEE, operate.nodes)),
        route("/v1/nodes/{id}", GET=needs(NODE_SEE, operate.node)),
        route("/v1/nodes/{id}/use", GET=needs(GPU_SEE, operate.node_use)),
        route(
            "/v1/nodes/{id}/drain",
            POST=needs(NODE_DRAIN, operate.drain_node),
            DELETE=needs(NODE_DRAIN, operate.undrain_node),
        ),
    ]


def _service_routes(services: ServiceHandlers) -> list[Route]:
    return [
        route("/v1/services", GET=needs(SERVICE_SEE, services.list)),
        route(
            "/v1/services/{name}",
            GET=needs(SERVICE_SEE, services.show),
            PUT=judged(SERVICE_WRITE, services.put),
            DELETE=judged(SERVICE_WRITE, services.delete),
        ),
    ]


def _template_routes(templates: TemplateHandlers) -> list[Route]:
    # All installations have the same templates. Rights for a rendered app are checked where the app is created.
    return [
        route("/v1/templates", GET=judged(APP_WRITE, templates.list)),
        route("/v1/templates/{name}/render", POST=judged(APP_WRITE, templates.render)),
    ]


def _task_routes(jobs: Jobs, unknown: UnknownTasks) -> list[Route]:
    return [
        route("/v1/tasks", GET=judged(JOB_SEE, jobs.tasks)),
        route("/v1/tasks/unknown", GET=needs(TASK_SEE, unknown.list)),
        route("/v1/tasks/unknown/{id}", DELETE=needs(TASK_WRITE, unknown.kill)),
        route("/v1/tasks/unknown/{id}/adopt", POST=needs(TASK_WRITE, unknown.adopt)),
    ]


def _access_routes(access: AccessDocuments, tokens: TokenHandlers, audit: AuditHandlers) -> list[Route]:
    return [
        route("/v1/audit", GET=needs(AUDIT_SEE, audit.list)),
        route("/v1/access", GET=needs(ACCESS_SEE, access.show), PUT=needs(ACCESS_WRITE, access.put)),
        route("/v1/access/versions", GET=needs(ACCESS_SEE, access.versions)),
        route("/v1/access/versions/{version}", GET=needs(ACCESS_SEE, access.version)),
        route("/v1/access/check", POST=named(access.check)),
        route("/v1/access/rights", GET=named(access.rights)),
        route("/v1/tokens", GET=judged(TOKEN_SEE, tokens.list), POST=judged(TOKEN_CREATE, tokens.create)),
        route(
            "/v1/tokens/{id}",
            GET=judged(TOKEN_SEE, tokens.show),
            DELETE=judged(TOKEN_REVOKE, tokens.revoke),
        ),
    ]


def _usage_routes(usage: UsageHandlers, budgets: BudgetHandlers) -> list[Route]:
    return [
        route("/v1/usage", GET=judged(JOB_SEE, usage.show)),
        route("/v1/usage/export", GET=judged(JOB_SEE, usage.export)),
        route("/v1/budgets", GET=judged(JOB_SEE, budgets.list)),
        route("/v1/budgets/grants", POST=needs(QUEUE_WRITE, budgets.grant)),
    ]


def _scheduler_routes(system: System, scrape: Scrape, upgrade: UpgradeHandlers) -> list[Route]:
    return [
        route("/v1/upgrade", GET=needs(CLUSTER_SEE, upgrade.show)),
        route("/v1/status", GET=needs(CLUSTER_SEE, system.status)),
        route("/v1/leader", GET=needs(CLUSTER_SEE, system.leader)),
        route("/v1/health", GET=free(system.health)),
        route("/v1/openapi.json", GET=free(system.openapi)),
        route("/metrics", GET=needs(METRICS_SEE, scrape.metrics)),
        route("/v1/sd", GET=judged(APP_SEE, scrape.targets)),
        route("/metrics/prometheus", GET=needs(METRICS_SEE, scrape.prometheus)),
        route("/", GET=free(system.page)),
        route("/static/{name}", GET=free(system.page)),
    ]
