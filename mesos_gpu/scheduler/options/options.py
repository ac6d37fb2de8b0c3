"""All options of the scheduler's command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final

from mesos_gpu.access.rate import Limits
from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.adapters.tls.variables import TLS as AGENT_TLS
from mesos_gpu.api.settings import SERVICE_PORTS
from mesos_gpu.api.spec.cluster.upgrade import Flag
from mesos_gpu.engine.settings import LOG_LIMIT_MIB, Settings
from mesos_gpu.model.jobs.job import Engine, GpuNodes, Placement
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.jobs.quota import Quota
from mesos_gpu.model.nodes.user_pool import POOL
from mesos_gpu.model.shares.host_settings import MIG, MPS_PERCENTAGES
from mesos_gpu.model.shares.request import Isolation, OnExcess
from mesos_gpu.policy.apps.outward import Outward
from mesos_gpu.scheduler.options import hosts, http, jobs, mesos, output, store
from mesos_gpu.scheduler.options.audit import AUDIT, AuditOptions
from mesos_gpu.scheduler.options.authentication import AUTHENTICATION, AuthenticationOptions
from mesos_gpu.scheduler.options.cluster.ha import HA, HaOptions
from mesos_gpu.scheduler.options.files.uploads import UPLOADS, UploadOptions
from mesos_gpu.scheduler.options.files.webhooks import WEBHOOKS, WebhookOptions
from mesos_gpu.scheduler.options.identity.oidc import OIDC, OidcOptions
from mesos_gpu.scheduler.options.limits import CHECKS, LIMITS
from mesos_gpu.scheduler.options.mesos_tls import MESOS_TLS, MesosTlsOptions
from mesos_gpu.scheduler.options.secrets import SECRETS, SecretOptions
from mesos_gpu.scheduler.options.section import (
    Decorators,
    GroupedOptions,
    Section,
    flags_in,
    with_options,
)
from mesos_gpu.scheduler.options.tls import TLS, TlsOptions

#: Sections of the command line, by the field of `Options` that holds their values.
SECTIONS: Final[Mapping[str, Section]] = {
    "cluster": HA,
    "tls": TLS,
    "mesos_tls": MESOS_TLS,
    "authentication": AUTHENTICATION,
    "oidc": OIDC,
    "limits": LIMITS,
    "checks": CHECKS,
    "audit": AUDIT,
    "secrets": SECRETS,
    "uploads": UPLOADS,
    "webhooks": WEBHOOKS,
}


@dataclass(frozen=True, slots=True)
class Options:
    """Values of the scheduler's command line."""

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
    role_of: Mapping[str, str] = field(default_factory=dict)  # Mesos roles by top-level queue
    container_engine: str = Engine.MESOS.value
    placement: str = Placement.BUNDLE.value
    placement_of: Mapping[str, Placement] = field(default_factory=dict)
    levels: tuple[str, ...] = ()  # topology levels, outermost first
    isolation: str = Isolation.SHARED.value
    gpu_compute_overcommit: float = 1.0
    mps_across_users: bool = False
    mig: str | None = None  # for all hosts; None to use each host's setting
    mps_percentages: str | None = None  # for all hosts; None to use each host's setting
    on_gpu_excess: str = OnExcess.END.value
    gpu_nodes: str = GpuNodes.LAST.value
    cpus_per_gpu: float = 4.0  # for jobs that request no CPUs; 0 as for jobs without GPUs
    mem_mib_per_gpu: int = 8192  # for jobs that request no memory; 0 as for jobs without GPUs
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    aging_step_s: float = 3600.0  # 0 if waiting adds no priority
    user_pool: str = ""  # FIRST-LAST, uids for jobs that name no user
    log_limit_mib: int = LOG_LIMIT_MIB  # for each of a task's stdout and stderr; 0 for no limit
    preemption: bool = True
    cover_linger_s: float = 60.0  # time a shared GPU stays reserved without shares
    service_ports: range = SERVICE_PORTS
    accept_older_state: bool = False
    user_pending: int = 10_000
    queue_pending: int = 20_000
    max_array: int = 10_000  # tasks of one job array
    user_volumes_mib: int = 102_400  # total of named volumes; 0 for no limit
    user_stored_mib: int = 64
    queue_stored_mib: int = 512
    allowed_hosts: tuple[str, ...] = ()
    insecure_no_authentication: bool = False
    access_file: Path | None = None
    longest_token_days: int = 365
    disk_reserve_mib: int | None = None  # None for the larger of 1 GiB and a tenth of the file system
    journal: Path | None = None
    journal_size_mib: int = 256
    journal_keep_days: int = 7
    journal_days: int = 30
    flags: tuple[Flag, ...] = ()  # all options by their names
    cluster: HaOptions = field(default_factory=HaOptions)
    tls: TlsOptions = field(default_factory=TlsOptions)
    mesos_tls: MesosTlsOptions = field(default_factory=MesosTlsOptions)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    oidc: OidcOptions = field(default_factory=OidcOptions)
    limits: Limits = field(default_factory=Limits)
    checks: Outward = field(default_factory=Outward)
    audit: AuditOptions = field(default_factory=AuditOptions)
    secrets: SecretOptions = field(default_factory=SecretOptions)
    uploads: UploadOptions = field(default_factory=UploadOptions)
    webhooks: WebhookOptions = field(default_factory=WebhookOptions)

    @property
    def reserve(self) -> Reserve:
        """Free space of the file system that is kept for the state, the audit log and the journal."""
        return Reserve(None if self.disk_reserve_mib is None else self.disk_reserve_mib << 20)


def engine_settings(options: Options) -> Settings:
    """Return the engine's settings."""
    return Settings.of(
        executor_command=options.executor_command,
        monitor_command=options.monitor_command,
        keeper_command=options.keeper_command,
        role=options.role,
        role_of=options.role_of,
        cover_linger_s=options.cover_linger_s,
        default_user=options.default_user,
        report_interval_s=options.report_interval_s,
        report_stale_s=3 * options.report_interval_s,
        unreachable_timeout_s=options.unreachable_timeout_s,
        placement=Placement(options.placement),
        placement_of=options.placement_of,
        levels=options.levels,
        isolation=Isolation(options.isolation),
        gpu_compute_overcommit=options.gpu_compute_overcommit,
        mps_across_users=options.mps_across_users,
        on_gpu_excess=OnExcess(options.on_gpu_excess),
        gpu_nodes=GpuNodes(options.gpu_nodes),
        cpus_per_gpu=options.cpus_per_gpu,
        mem_mib_per_gpu=options.mem_mib_per_gpu,
        queue_limits=options.queue_limits,
        user_quota=Quota(options.user_pending, options.user_stored_mib),
        queue_quota=Quota(options.queue_pending, options.queue_stored_mib),
        max_array=options.max_array,
        user_volumes_mib=options.user_volumes_mib,
        aging_step_s=options.aging_step_s or inf,
        log_limit_mib=options.log_limit_mib,
        executor_env=_executor_env(options),
        preemption=options.preemption,
        control_access=options.permits.control_access,
        sealed=True,
        secrets=options.secrets.enabled,
    )


def _executor_env(options: Options) -> dict[str, str]:
    """Return variables for executors' environments, which override those of agents."""
    given = {POOL: options.user_pool, MIG.name: options.mig, MPS_PERCENTAGES.name: options.mps_percentages}
    given |= {AGENT_TLS: "on" if options.mesos_tls.is_on(options.master) else ""}
    return {name: value for name, value in given.items() if value}


#: Titles of groups in --help, with the options of each, in the order shown.
GROUPS: Final[Mapping[str, tuple[Decorators, ...]]] = {
    "Mesos": (mesos.OPTIONS, MESOS_TLS.options),
    "State and its disk": (store.OPTIONS,),
    "REST interface": (http.OPTIONS, TLS.options),
    "Names and rights": (AUTHENTICATION.options, OIDC.options),
    "Limits of requests": (LIMITS.options,),
    "Jobs and placement": (jobs.OPTIONS,),
    "GPU hosts": (hosts.OPTIONS,),
    "Health checks of apps": (CHECKS.options,),
    "Secrets": (SECRETS.options,),
    "Uploads and webhooks": (UPLOADS.options, WEBHOOKS.options),
    "Several schedulers": (HA.options,),
    "Audit": (AUDIT.options,),
    "Log": (output.OPTIONS,),
}


class SchedulerCommand(GroupedOptions):
    """The command `mesos-gpu scheduler`."""

    groups: ClassVar = {
        title: [flag for options in lists for flag in flags_in(options)] for title, lists in GROUPS.items()
    }


def all_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the scheduler's options."""
    return with_options(*(options for lists in GROUPS.values() for options in lists))(command)
