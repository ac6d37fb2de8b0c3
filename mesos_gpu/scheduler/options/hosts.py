"""What runs on hosts, and how they share their GPUs."""

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
        help="mesos-gpu-executor.pyz, where it is on the agents, or from where each fetches it once: all three "
        "programs are of it, unless a command is given. Default: commands of these names on the agents' PATH.",
    ),
    click.option("--executor-command", help="Shell command that starts an executor on an agent."),
    click.option("--monitor-command", help="Shell command that starts a node monitor on an agent."),
    click.option(
        "--keeper-command", help="Shell command that starts what holds an agent's shared GPUs in Mesos."
    ),
    click.option(
        "--user-pool",
        default="",
        metavar="FIRST-LAST",
        callback=parse.user_pool,
        help="Uids of which each task of a job that names no user gets one of its own, on its host; comes before "
        "MESOS_GPU_USER_POOL of an agent.",
    ),
    click.option(
        "--log-limit",
        "log_limit_mib",
        default=LOG_LIMIT_MIB,
        show_default=True,
        type=click.IntRange(0),
        envvar="MESOS_GPU_LOG_LIMIT",
        metavar="MIB",
        help="Size that stdout and stderr of a task may each have; older output is cut off. 0: no limit.",
    ),
    click.option(
        "--gpu-isolation",
        "isolation",
        type=click.Choice([choice.value for choice in Isolation]),
        default=Isolation.SHARED.value,
        show_default=True,
        envvar="MESOS_GPU_SHARE_ISOLATION",
        help="Least that will do to enforce shares of GPUs whose jobs ask for none.",
    ),
    click.option(
        "--gpu-compute-overcommit",
        default="1",
        show_default=True,
        metavar="TIMES",
        callback=parse.overcommit,
        envvar="MESOS_GPU_COMPUTE_OVERCOMMIT",
        help="How often the compute of a shared GPU may be promised, from 1; its memory never is more than "
        "once.",
    ),
    click.option(
        "--mig",
        type=click.Choice(MIG.values),
        help="Whether MIG instances are shares: those that operators made; also those that hosts make (dynamic); "
        "or none. Comes before MESOS_GPU_MIG of an agent.",
    ),
    click.option(
        "--mps-percentages",
        type=click.Choice(MPS_PERCENTAGES.values),
        help="Percentages that shares by MPS get: those with which results were right, or any; comes before "
        "MESOS_GPU_MPS_PERCENTAGES of an agent.",
    ),
    click.option(
        "--mps-across-users/--no-mps-across-users",
        default=False,
        show_default=True,
        envvar="MESOS_GPU_MPS_ACROSS_USERS",
        help="Let shares of several users have one server of MPS, on hosts that permit it "
        "(MESOS_GPU_MPS_USERS=all): a fault of one ends all of them.",
    ),
    click.option(
        "--on-gpu-excess",
        type=click.Choice([choice.value for choice in OnExcess]),
        default=OnExcess.END.value,
        show_default=True,
        envvar="MESOS_GPU_ON_GPU_EXCESS",
        help="Action on tasks that use more memory than their share: end warns before it ends them.",
    ),
    click.option(
        "--share-linger",
        "cover_linger_s",
        default=60.0,
        show_default=True,
        type=parse.NumberRange(min=0),
        help="Seconds that a GPU stays open to shares after its last one has ended.",
    ),
)
