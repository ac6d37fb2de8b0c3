"""Options of the state, access rights and the journal."""

import click

from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option(
        "--state",
        type=parse.FILE,
        required=True,
        envvar="MESOS_GPU_STATE",
        help="File with jobs, queues and the framework id, kept across restarts.",
    ),
    click.option(
        "--disk-reserve",
        "disk_reserve_mib",
        type=click.IntRange(0),
        metavar="MIB",
        show_default="the larger of 1024 and a tenth of the file system",
        help="Free space kept for the state, the audit log and the newest journal; below it, code archives of jobs are "
        "refused.",
    ),
    click.option(
        "--accept-older-state",
        is_flag=True,
        help="Start although the state file is older than the last one saved, such as a restored backup; for one "
        "start only.",
    ),
    click.option(
        "--access-file",
        type=parse.FILE,
        envvar="MESOS_GPU_ACCESS_FILE",
        help="Initial access rules, in the format of `mesos-gpu access show`; later changes take precedence.",
    ),
    click.option(
        "--longest-token",
        "longest_token_days",
        default=365,
        show_default=True,
        type=click.IntRange(1, 3650),
        metavar="DAYS",
        help="Maximum lifetime of tokens.",
    ),
    click.option(
        "--journal",
        type=parse.DIRECTORY,
        envvar="MESOS_GPU_JOURNAL",
        help="Directory of a journal of all events and decisions, for `mesos-gpu simulate replay`.",
    ),
    click.option(
        "--journal-size",
        "journal_size_mib",
        default=256,
        show_default=True,
        type=click.IntRange(8),
        metavar="MIB",
        help="Size of the journal beyond which its oldest files are removed, if they are older than "
        "--journal-keep-days.",
    ),
    click.option(
        "--journal-keep-days",
        default=7,
        show_default=True,
        type=click.IntRange(0),
        metavar="DAYS",
        help="Days for which journal files are kept beyond --journal-size, up to 8 times that size, while the disk has "
        "more than half of --disk-reserve free.",
    ),
    click.option(
        "--journal-days",
        default=30,
        show_default=True,
        type=click.IntRange(1),
        metavar="DAYS",
        help="Days after which journal files are removed.",
    ),
)
