"""Options of the programs on GPU hosts, and of sharing GPUs."""

import click

from mesos_gpu.engine.settings import LOG_LIMIT_MIB
from mesos_gpu.model.shares.host_settings import MIG, MPS_PERCENTAGES
from mesos_gpu.model.shares.request import Isolation, OnExcess
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option(
        "--executor-archive",
        metavar="PATH|URI#sha256=HEX",
        callback=parse.archive,
        envvar="MESOS_GPU_EXECUTOR_ARCHIVE",
        help="mesos-gpu-executor.pyz: its path on the agents, or a URI from which each agent fetches it once. It "
        "contains "
        "executor, monitor and keeper. Default: commands of these names on the agents' PATH.",
    ),
    click.option("--executor-command", help="Shell command that starts an executor on an agent."),
    click.option("--monitor-command", help="Shell command that starts a node monitor on an agent."),
    click.option(
        "--keeper-command",
        help="Shell command that starts a keeper, which holds an agent's shared GPUs in Mesos.",
    ),
    click.option(
        "--user-pool",
        default="",
        metavar="FIRST-LAST",
        callback=parse.user_pool,
        help="Range of uids from which each task of a job without a user gets its own uid on its host; overrides "
        "MESOS_GPU_USER_POOL of agents.",
    ),
    click.option(
        "--log-limit",
        "log_limit_mib",
        default=LOG_LIMIT_MIB,
        show_default=True,
        type=click.IntRange(0),
        envvar="MESOS_GPU_LOG_LIMIT",
        metavar="MIB",
        help="Maximum size of each of a task's stdout and stderr; older output is removed. 0: no limit.",
    ),
    click.option(
        "--gpu-isolation",
        "isolation",
        type=click.Choice([choice.value for choice in Isolation]),
        default=Isolation.SHARED.value,
        show_default=True,
        envvar="MESOS_GPU_SHARE_ISOLATION",
        help="Minimum isolation of GPU shares for jobs that request none.",
    ),
    click.option(
        "--gpu-compute-overcommit",
        default="1",
        show_default=True,
        metavar="TIMES",
        callback=parse.overcommit,
        envvar="MESOS_GPU_COMPUTE_OVERCOMMIT",
        help="Factor by which the compute of a shared GPU may be overcommitted, from 1; memory is never overcommitted.",
    ),
    click.option(
        "--mig",
        type=click.Choice(MIG.values),
        help="MIG instances that GPU shares may use: those that operators created (static), also those that hosts "
        "create "
        "(dynamic), or none (off). Overrides MESOS_GPU_MIG of agents.",
    ),
    click.option(
        "--mps-percentages",
        type=click.Choice(MPS_PERCENTAGES.values),
        help="MPS percentages that GPU shares may use: only those with tested results, or any; overrides "
        "MESOS_GPU_MPS_PERCENTAGES of agents.",
    ),
    click.option(
        "--mps-across-users/--no-mps-across-users",
        default=False,
        show_default=True,
        envvar="MESOS_GPU_MPS_ACROSS_USERS",
        help="Let shares of several users use one MPS server, on hosts that permit it (MESOS_GPU_MPS_USERS=all); a "
        "fault in one share ends all of them.",
    ),
    click.option(
        "--on-gpu-excess",
        type=click.Choice([choice.value for choice in OnExcess]),
        default=OnExcess.END.value,
        show_default=True,
        envvar="MESOS_GPU_ON_GPU_EXCESS",
        help="Action on tasks that use more GPU memory than their share; end gives a warning first.",
    ),
    click.option(
        "--share-linger",
        "cover_linger_s",
        default=60.0,
        show_default=True,
        type=parse.NumberRange(min=0),
        help="Seconds that a GPU stays reserved for shares after its last share has ended.",
    ),
)
