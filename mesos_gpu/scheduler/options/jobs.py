"""What jobs may ask for, and how they wait."""

import click

from mesos_gpu.api.settings import SERVICE_PORTS
from mesos_gpu.model.arrays.indexes import MAX
from mesos_gpu.model.jobs.job import Engine, GpuNodes, Placement
from mesos_gpu.model.jobs.permits import ROOTS
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option("--default-user", help="User of jobs that name none; default: the executor's own."),
    click.option(
        "--allow-root",
        type=click.Choice(ROOTS),
        help="Let jobs ask for the user root: in an image, or also on the file system of the host, where that is "
        "root of the host.",
    ),
    click.option(
        "--users",
        default="",
        metavar="LIST",
        callback=parse.users,
        show_default="1000-, and the default user",
        help="Users that jobs may run as: names and ranges of uids, as alice,2000-2999; never members of docker, "
        "sudo and the like, nor root.",
    ),
    click.option(
        "--same-accounts",
        is_flag=True,
        help="All hosts have the accounts of this host: a job of a user that has none here is refused at once, and "
        "does not fail where it starts.",
    ),
    click.option(
        "--network-as-host",
        "host_networks",
        multiple=True,
        metavar="NAME",
        help="Run apps of this container network in the host's network, with the ports of their portMappings; "
        "mesos-bridge is that of container/bridge without Docker; may be repeated.",
    ),
    click.option(
        "--control-access",
        multiple=True,
        metavar="NAME[@USER]=LIST",
        callback=parse.control_access,
        help="Which of api,master jobs of that name, or the app of that id, may reach, alone or as that user; "
        "others reach none; may be repeated.",
    ),
    click.option(
        "--container-engine",
        default=Engine.MESOS.value,
        show_default=True,
        type=click.Choice([engine.value for engine in Engine]),
        help="Engine that runs images, for jobs that choose none.",
    ),
    click.option(
        "--placement",
        type=click.Choice([choice.value for choice in Placement]),
        default=Placement.BUNDLE.value,
        show_default=True,
        help="Placement policy of jobs that choose none.",
    ),
    click.option(
        "--placement-of",
        multiple=True,
        metavar="APP=POLICY",
        callback=parse.placement_of,
        help="Placement of an app's jobs that ask for none; may be repeated.",
    ),
    click.option(
        "--topology",
        "levels",
        default="",
        metavar="LIST",
        callback=parse.levels,
        show_default="none",
        help="Attributes of agents that are levels of the fabric, the outermost first, as block,rack,host.",
    ),
    click.option(
        "--gpu-nodes",
        type=click.Choice([choice.value for choice in GpuNodes]),
        default=GpuNodes.LAST.value,
        show_default=True,
        help="Whether work without GPUs may use nodes with some.",
    ),
    click.option(
        "--default-cpus-per-gpu",
        "cpus_per_gpu",
        default=4.0,
        show_default=True,
        type=parse.NumberRange(0, 1000),
        metavar="N",
        help="Most CPUs for each GPU of jobs that name no CPUs; fewer where nodes have fewer for each GPU. 0: as jobs "
        "without GPUs.",
    ),
    click.option(
        "--default-mem-per-gpu",
        "mem_mib_per_gpu",
        default=8192,
        show_default=True,
        type=click.IntRange(0, 2**31),
        metavar="MIB",
        help="The same of memory.",
    ),
    click.option(
        "--preemption/--no-preemption",
        default=True,
        show_default=True,
        help="Whether a job may end preemptible ones of lower priority.",
    ),
    click.option(
        "--queue",
        "queue_limits",
        multiple=True,
        metavar="NAME=MAX_GPUS",
        callback=parse.queue_limits,
        help="Most GPUs that the jobs of a queue may hold at once; may be repeated.",
    ),
    click.option(
        "--user-pending",
        default=10_000,
        show_default=True,
        type=click.IntRange(0),
        metavar="JOBS",
        help="Most jobs of a user, and of a proved name, that may wait at once; 0: any.",
    ),
    click.option(
        "--queue-pending",
        default=20_000,
        show_default=True,
        type=click.IntRange(0),
        metavar="JOBS",
        help="The same of a queue.",
    ),
    click.option(
        "--max-array",
        default=10_000,
        show_default=True,
        type=click.IntRange(1, MAX),
        metavar="TASKS",
        help="Most tasks of a job array; each counts as a job that waits.",
    ),
    click.option(
        "--user-stored",
        "user_stored_mib",
        default=64,
        show_default=True,
        type=click.IntRange(0),
        metavar="MIB",
        help="Most that is kept of a user's jobs, and of a proved name's, ended ones too; 0: any.",
    ),
    click.option(
        "--user-volumes",
        "user_volumes_mib",
        default=102_400,
        show_default=True,
        type=click.IntRange(0),
        metavar="MIB",
        help="Most that the named volumes of a user, or of a proved name, may hold in all; 0: any.",
    ),
    click.option(
        "--queue-stored",
        "queue_stored_mib",
        default=512,
        show_default=True,
        type=click.IntRange(0),
        metavar="MIB",
        help="The same of a queue.",
    ),
    click.option(
        "--aging-step",
        "aging_step_s",
        default=3600.0,
        show_default=True,
        type=parse.NumberRange(min=0),
        help="Seconds of waiting that are worth one of priority; 0: none.",
    ),
    click.option(
        "--service-ports",
        default=f"{SERVICE_PORTS[0]}-{SERVICE_PORTS[-1]}",
        show_default=True,
        metavar="FIRST-LAST",
        callback=parse.service_ports,
        help="Service ports that apps get which leave theirs open.",
    ),
)
