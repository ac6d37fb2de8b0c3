"""Options of the Mesos cluster to register with."""

import click

from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.parse import NumberRange
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option(
        "--master",
        required=True,
        metavar="HOST:PORT|zk://...",
        envvar="MESOS_GPU_MASTER",
        help="Address of the Mesos master, or of the ZooKeeper servers of several masters, for example "
        "zk://z1:2181,z2:2181,z3:2181/mesos.",
    ),
    click.option("--role", default="*", show_default=True, help="Mesos role to receive offers for."),
    click.option(
        "--mesos-role-of",
        "role_of",
        multiple=True,
        metavar="QUEUE=ROLE",
        callback=parse.role_of,
        help="Mesos role for the jobs of a top-level queue and all queues below it; other queues use --role. Use it "
        "where other frameworks share that role: what Mesos offers to one role no other may use. May be repeated.",
    ),
    click.option(
        "--user", default=parse.own_user, show_default="the current user", help="User that executors run as."
    ),
    click.option("--name", default="mesos_gpu", show_default=True, help="Name of the framework."),
    click.option(
        "--failover-timeout",
        "failover_timeout_s",
        default=604800.0,
        show_default=True,
        type=NumberRange(0),
        help="Seconds for which Mesos keeps tasks running without a scheduler.",
    ),
    click.option("--principal", help="Mesos principal."),
    click.option("--secret-file", type=parse.FILE, help="File with the secret of --principal."),
    click.option(
        "--mesos-credentials",
        type=parse.FILE,
        metavar="FILE",
        help="File with principal and secret, readable only by its owner: for agents that need them to read logs, and "
        "for the master unless --principal is given.",
    ),
    click.option(
        "--report-interval",
        "report_interval_s",
        default=10.0,
        show_default=True,
        type=NumberRange(0, min_open=True),
        help="Seconds between the reports of a node monitor.",
    ),
    click.option(
        "--unreachable-timeout",
        "unreachable_timeout_s",
        default=120.0,
        show_default=True,
        type=NumberRange(0),
        help="Seconds after which a job on an unreachable agent is restarted on another agent.",
    ),
)
