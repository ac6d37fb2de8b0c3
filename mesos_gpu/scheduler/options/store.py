"""What is kept."""

import click

from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators

OPTIONS: Decorators = (
    click.option(
        "--state",
        type=parse.FILE,
        required=True,
        envvar="MESOS_GPU_STATE",
        help="File that keeps jobs and the framework id across restarts.",
    ),
    click.option(
        "--disk-reserve",
        "disk_reserve_mib",
        type=click.IntRange(0),
        metavar="MIB",
        show_default="the larger of 1024 and a tenth of the file system",
        help="Free space that is kept for the state, the audit log and the newest journal: below it, archives of jobs "
        "are refused.",
    ),
    click.option(
        "--accept-older-state",
        is_flag=True,
        help="Go on with a state file that is older than what was written; for one start.",
    ),
    click.option(
        "--access-file",
        type=parse.FILE,
        envvar="MESOS_GPU_ACCESS_FILE",
        help="First document of rights, as `mesos-gpu access show` prints it; later changes take precedence.",
    ),
    click.option(
        "--longest-token",
        "longest_token_days",
        default=365,
        show_default=True,
        type=click.IntRange(1, 3650),
        metavar="DAYS",
        help="Longest lifetime of a token.",
    ),
    click.option(
        "--journal",
        type=parse.DIRECTORY,
        envvar="MESOS_GPU_JOURNAL",
        help="Directory that all events and decisions are kept in, for `mesos-gpu simulate replay`.",
    ),
    click.option(
        "--journal-size",
        "journal_size_mib",
        default=256,
        show_default=True,
        type=click.IntRange(8),
        metavar="MIB",
        help="Size beyond which its oldest files are removed, if they are older than --journal-keep-days.",
    ),
    click.option(
        "--journal-keep-days",
        default=7,
        show_default=True,
        type=click.IntRange(0),
        metavar="DAYS",
        help="Time for which its files are kept beyond --journal-size, up to 8 times that, while the disk has more "
        "than half of --disk-reserve.",
    ),
    click.option(
        "--journal-days",
        default=30,
        show_default=True,
        type=click.IntRange(1),
        metavar="DAYS",
        help="Time after which its files are removed.",
    ),
)
