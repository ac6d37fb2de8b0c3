"""Options of jobs: permitted requests, placement, limits and priorities."""

import click

from mesos_gpu.api.settings import SERVICE_PORTS
from mesos_gpu.model.arrays.indexes import MAX
from mesos_gpu.model.jobs.job import Engine, GpuNodes, Placement
from mesos_gpu.model.jobs.permits import ROOTS
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option("--default-user", help="Unix user of jobs that name none; default: the executor's user."),
    click.option(
        "--allow-root",
        type=click.Choice(ROOTS),
        help="Let jobs request the user root: only in images, or also on the host's file system, where it is root of "
        "the "
        "host.",
    ),
    click.option(
        "--users",
        default="",
        metavar="LIST",
        callback=parse.users,
        show_default="1000-, and the default user",
        help="Unix users that jobs may run as: names and ranges of uids, for example alice,2000-2999. Members of "
        "docker, "
        "sudo and similar groups, and root, are never permitted.",
    ),
    click.option(
        "--same-accounts",
        is_flag=True,
        help="All hosts have the same accounts as this one: a job of a user without an account here is refused at "
        "once, "
        "instead of failing at its start.",
    ),
    click.option(
        "--network-as-host",
        "host_networks",
        multiple=True,
        metavar="NAME",
        help="Run apps of this container network in the host's network, with the ports of their portMappings; the name "
        "mesos-bridge stands for container/bridge without Docker; may be repeated.",
    ),
    click.option(
        "--control-access",
        multiple=True,
        metavar="NAME[@USER]=LIST",
        callback=parse.control_access,
        help="Let jobs of this name, or the app with this id, connect to control ports: LIST is api, master or both. "
        "With @USER, only jobs of that user. No other job can connect to a control port. May be repeated.",
    ),
    click.option(
        "--container-engine",
        default=Engine.MESOS.value,
        show_default=True,
        type=click.Choice([engine.value for engine in Engine]),
        help="Container engine for jobs that choose none.",
    ),
    click.option(
        "--placement",
        type=click.Choice([choice.value for choice in Placement]),
        default=Placement.BUNDLE.value,
        show_default=True,
        help="Placement policy for jobs that choose none.",
    ),
    click.option(
        "--placement-of",
        multiple=True,
        metavar="APP=POLICY",
        callback=parse.placement_of,
        help="Placement policy for jobs of an app that choose none; may be repeated.",
    ),
    click.option(
        "--topology",
        "levels",
        default="",
        metavar="LIST",
        callback=parse.levels,
        show_default="none",
        help="Agent attributes that are levels of the network topology, outermost first, for example block,rack,host.",
    ),
    click.option(
        "--gpu-nodes",
        type=click.Choice([choice.value for choice in GpuNodes]),
        default=GpuNodes.LAST.value,
        show_default=True,
        help="Whether jobs without GPUs may use nodes with GPUs.",
    ),
    click.option(
        "--default-cpus-per-gpu",
        "cpus_per_gpu",
        default=4.0,
        show_default=True,
        type=parse.NumberRange(0, 1000),
        metavar="N",
        help="Maximum CPUs per GPU for jobs that request no CPUs; fewer on nodes that have fewer per GPU. 0: as for "
        "jobs "
        "without GPUs.",
    ),
    click.option(
        "--default-mem-per-gpu",
        "mem_mib_per_gpu",
        default=8192,
        show_default=True,
        type=click.IntRange(0, 2**31),
        metavar="MIB",
        help="Maximum memory per GPU for jobs that request no memory; less on nodes that have less per GPU. 0: as "
        "for jobs without GPUs.",
    ),
    click.option(
        "--preemption/--no-preemption",
        default=True,
        show_default=True,
        help="Whether jobs may preempt preemptible jobs of lower priority.",
    ),
    click.option(
        "--queue",
        "queue_limits",
        multiple=True,
        metavar="NAME=MAX_GPUS",
        callback=parse.queue_limits,
        help="Maximum number of GPUs that a queue's jobs may hold at once; may be repeated.",
    ),
    click.option(
        "--user-pending",
        default=10_000,
        show_default=True,
        type=click.IntRange(0),
        metavar="JOBS",
        help="Maximum pending jobs of a Unix user, and of an authenticated user; 0: no limit.",
    ),
    click.option(
        "--queue-pending",
        default=20_000,
        show_default=True,
        type=click.IntRange(0),
        metavar="JOBS",
        help="Maximum pending jobs of a queue; 0: no limit.",
    ),
    click.option(
        "--max-array",
        default=10_000,
        show_default=True,
        type=click.IntRange(1, MAX),
        metavar="TASKS",
        help="Maximum tasks of a job array; each counts as a pending job.",
    ),
    click.option(
        "--user-stored",
        "user_stored_mib",
        default=64,
        show_default=True,
        type=click.IntRange(0),
        metavar="MIB",
        help="Maximum size of the stored jobs of a Unix user, and of an authenticated user, including ended jobs; 0: "
        "no limit.",
    ),
    click.option(
        "--user-volumes",
        "user_volumes_mib",
        default=102_400,
        show_default=True,
        type=click.IntRange(0),
        metavar="MIB",
        help="Maximum total size of the named volumes of a Unix user, or of an authenticated user; 0: no limit.",
    ),
    click.option(
        "--queue-stored",
        "queue_stored_mib",
        default=512,
        show_default=True,
        type=click.IntRange(0),
        metavar="MIB",
        help="Maximum size of the stored jobs of a queue, including ended jobs; 0: no limit.",
    ),
    click.option(
        "--aging-step",
        "aging_step_s",
        default=3600.0,
        show_default=True,
        type=parse.NumberRange(min=0),
        help="Seconds of waiting that raise a job's priority by one; 0: waiting does not raise it.",
    ),
    click.option(
        "--service-ports",
        default=f"{SERVICE_PORTS[0]}-{SERVICE_PORTS[-1]}",
        show_default=True,
        metavar="FIRST-LAST",
        callback=parse.service_ports,
        help="Range of service ports for apps that do not choose one.",
    ),
)
