"""The command line: `mesos-gpu COMMAND`. A command's module is imported when it is called, not before."""

import os
import sys
from typing import Any, Final

import click

import mesos_gpu
from mesos_gpu.cli.app import EXIT_CODES, App, context_options, home_option, tls_options, url_option
from mesos_gpu.cli.interrupt import Terminated
from mesos_gpu.cli.table import Table
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.wire.plain import clean_lines

# Name of a command, the module that has a function of that name, and its one line in --help.
# The line stands here so that --help imports no command; a test holds it equal to the docstring's.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("mesos_gpu.cli.jobs.run", "Run a command as a job and stay with it."),
    "submit": ("mesos_gpu.cli.jobs.submit", "Submit the jobs of a file."),
    "uploads": ("mesos_gpu.cli.code.uploads", "The archives of code that the scheduler keeps of you."),
    "storage": ("mesos_gpu.cli.files.storage", "Named volumes of jobs: data on a host that outlives jobs."),
    "notebook": (
        "mesos_gpu.cli.sessions.notebook",
        "Run a notebook server as a job, and reach it from here.",
    ),
    "ps": ("mesos_gpu.cli.jobs.listing", "List jobs: what runs before what waits."),
    "show": ("mesos_gpu.cli.jobs.commands", "Show all there is to know about one job."),
    "why": ("mesos_gpu.cli.jobs.commands", "Say why a job waits, and what comes nearest."),
    "logs": ("mesos_gpu.cli.jobs.logs", "Print what a job has written."),
    "attach": ("mesos_gpu.cli.sessions.attach", "Stay with a job that runs, as run does."),
    "wait": ("mesos_gpu.cli.jobs.commands", "Wait until jobs have ended."),
    "kill": ("mesos_gpu.cli.jobs.kill", "Kill jobs."),
    "resize": ("mesos_gpu.cli.jobs.resize", "Give a running job more or less of the GPUs that it shares."),
    "keep": ("mesos_gpu.cli.queues.keep", "Keep a job from being ended for GPUs that do nothing."),
    "exec": ("mesos_gpu.cli.channel.commands:exec_", "Run a command in a running job, as the job runs."),
    "cp": ("mesos_gpu.cli.files.commands", "Copy files and directories from a job and to it."),
    "ls": (
        "mesos_gpu.cli.files.commands",
        "List the files of a job: what is in its sandbox, or at a path.",
    ),
    "cat": ("mesos_gpu.cli.files.commands", "Print files of a job."),
    "port-forward": (
        "mesos_gpu.cli.channel.ports:port_forward",
        "Reach ports of a running job from this machine.",
    ),
    "app": ("mesos_gpu.cli.apps.commands:app_group", "Apps: services that are kept up, and how they change."),
    "deployment": ("mesos_gpu.cli.apps.deployments", "Deployments: changes of apps that are under way."),
    "diff": ("mesos_gpu.cli.apps.diff", "Say what a file of apps would change; nothing is changed."),
    "service": ("mesos_gpu.cli.apps.service", "Services: names whose requests are split over apps."),
    "template": ("mesos_gpu.cli.apps.template", "Templates: apps for Marathon, ready to send."),
    "queue": (
        "mesos_gpu.cli.queues.commands",
        "List the jobs that wait, in the order in which they are tried.",
    ),
    "budget": ("mesos_gpu.cli.records.budget", "Budgets: GPU hours of a period, by what each GPU costs."),
    "reserve": (
        "mesos_gpu.cli.bookings.commands",
        "Book GPUs for a queue, from one time to another.",
    ),
    "report": ("mesos_gpu.cli.records.report", "Reports of what was used, who waited, and who was served."),
    "status": ("mesos_gpu.cli.cluster.overview", "Show the scheduler and a summary of the cluster."),
    "top": (
        "mesos_gpu.cli.top.command",
        "Watch what cards, nodes, tasks or the queue do.",
    ),
    "gpus": ("mesos_gpu.cli.cluster.overview", "List the GPUs of the cluster and who holds them."),
    "nodes": ("mesos_gpu.cli.cluster.overview", "List the agents of the cluster."),
    "gpu": ("mesos_gpu.cli.cluster.gpu", "GPUs: their health and its history, drains, resets."),
    "node": (
        "mesos_gpu.cli.cluster.node",
        "Nodes: drains, their devices for container engines, and what keeps shares on them.",
    ),
    "tasks": ("mesos_gpu.cli.cluster.tasks", "Tasks that run, and that the scheduler's state does not know."),
    "plan": ("mesos_gpu.cli.cluster.plan", "What an operator could do to make room; nothing is changed."),
    "volume": ("mesos_gpu.cli.host.volume", "Driver volumes: the NVIDIA libraries of this host, for tasks."),
    "events": (
        "mesos_gpu.cli.records.events",
        "Tell what has happened of late; the newest last.",
    ),
    "history": (
        "mesos_gpu.cli.records.history",
        "List jobs that have ended, also long ago; the newest first.",
    ),
    "audit": ("mesos_gpu.cli.records.audit", "Tell who changed what, and what was refused; the newest last."),
    "webhook": ("mesos_gpu.cli.records.webhook", "Webhooks: addresses that are told what happens."),
    "login": (
        "mesos_gpu.cli.login.commands",
        "Prove who you are to the scheduler, for the commands that follow.",
    ),
    "logout": ("mesos_gpu.cli.login.commands", "Forget the login, and let it prove nothing any more."),
    "context": ("mesos_gpu.cli.login.context", "Schedulers by names of one's own."),
    "whoami": ("mesos_gpu.cli.access.whoami", "Say who you are to the scheduler, and what you may do."),
    "access": ("mesos_gpu.cli.access.commands", "Roles and bindings: who may do what."),
    "token": (
        "mesos_gpu.cli.access.token",
        "Tokens: what proves a name to the scheduler, for programs.",
    ),
    "up": (
        "mesos_gpu.cli.local.up",
        "Start Mesos, agents with simulated GPUs and the scheduler on this machine.",
    ),
    "down": ("mesos_gpu.cli.local.up", "Stop what `mesos-gpu up` started, and remove its traces."),
    "demo": (
        "mesos_gpu.cli.demo.command",
        "Show it all on this machine: start, run jobs of every kind, check, stop.",
    ),
    "simulate": (
        "mesos_gpu.cli.simulate.commands",
        "The real policies and the real engine, on a virtual clock.",
    ),
    "install": (
        "mesos_gpu.cli.host.install",
        "Make or print what a real cluster's hosts need; nothing is installed.",
    ),
    "doctor": (
        "mesos_gpu.cli.host.doctor",
        "Check that this host is fit to run GPU tasks, and whom Mesos believes.",
    ),
    "cluster": (
        "mesos_gpu.cli.host.cluster",
        "Mesos, ZooKeeper and the scheduler on hosts that a file names.",
    ),
    "mesos": ("mesos_gpu.cli.host.mesos", "Mesos itself on this host: a master, an agent."),
    "scheduler": ("mesos_gpu.scheduler.__main__", "Run the scheduler framework against a Mesos master."),
    "leader": (
        "mesos_gpu.cli.cluster.leader",
        "Show which of several schedulers leads, and how far the others are.",
    ),
    "backup": ("mesos_gpu.cli.cluster.backup", "Copy the scheduler's state to a file, also while it runs."),
    "restore": (
        "mesos_gpu.cli.cluster.backup",
        "Put a backup in place of the scheduler's state, while no scheduler runs on it.",
    ),
    "upgrade": (
        "mesos_gpu.cli.upgrade.commands",
        "Upgrades: what runs now, and what this program would do in its place.",
    ),
    "teardown": (
        "mesos_gpu.cli.host.teardown",
        "End a framework at the master: all its tasks end, and its id is never taken again.",
    ),
    "help": ("mesos_gpu.cli.completion:help_command", "Print what a command does."),
    "completion": ("mesos_gpu.cli.completion", "Print the completion script of a shell."),
}

# What the commands of --help are about, each from the command on that is named here.
HEADINGS: Final[dict[str, str]] = {
    "run": "Jobs",
    "exec": "In a running job",
    "app": "Apps and services",
    "queue": "Queues and budgets",
    "status": "GPUs and nodes",
    "events": "What happened",
    "login": "Who may do what",
    "up": "On this machine",
    "install": "A real cluster",
    "help": "Help",
}

# What `mesos-gpu` alone prints: the commands of the first weeks, below what they are for.
FIRST: Final[dict[str, tuple[str, ...]]] = {
    "Run a job": ("run", "submit", "kill"),
    "See what it does": ("ps", "why", "logs", "exec", "cp"),
    "Keep a service up": ("app",),
    "See the cluster": ("top", "nodes", "queue"),
}
_MORE: Final = (
    ("mesos-gpu help COMMAND", "what a command does, with examples"),
    ("mesos-gpu --help", f"all {len(COMMANDS)} commands"),
    ("mesos-gpu up", "a cluster with simulated GPUs on this machine, to try all of it"),
)

# What other systems call a command, and what it is called here.
WORDS: Final[dict[str, str]] = {
    "apply": "submit FILE, app create FILE or queue apply FILE",
    "book": "reserve",
    "booking": "reserve",
    "bookings": "reserve list",
    "cancel": "kill",
    "cordon": "node drain",
    "delete": "kill, or app delete",
    "describe": "show",
    "drain": "node drain, or gpu drain",
    "get": "ps, gpus, nodes or app list",
    "info": "status, or show",
    "jobs": "ps",
    "list": "ps",
    "log": "logs -f",
    "restart": "app restart",
    "rm": "kill",
    "sbatch": "submit, or run --detach",
    "scale": "app scale",
    "scancel": "kill",
    "secret": "run --secret; an operator of the scheduler keeps secrets: docs/secrets.md",
    "secrets": "run --secret; an operator of the scheduler keeps secrets: docs/secrets.md",
    "sinfo": "nodes, or gpus",
    "squeue": "ps, or queue",
    "srun": "run",
    "start": "run, or app create",
    "stop": "kill",
    "tail": "logs -f",
    "terminate": "kill",
    "uncordon": "node undrain",
    "undrain": "node undrain, or gpu undrain",
    "version": "status, or mesos-gpu --version",
}


def _drop_output() -> None:
    """Python flushes stdout once more at exit; where that must fail again, let it go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_an_extra(error: ModuleNotFoundError) -> Unavailable:
    """What to say where a package is missing that the command line itself does not need.

    Raises:
        ModuleNotFoundError: `error`, where the module is one of mesos_gpu or of Python: a defect.
    """
    top = (error.name or "mesos_gpu").partition(".")[0]
    if top in ("isolator", "marathon_templates", "mesos_gpu", "volumes") or top in sys.stdlib_module_names:
        raise error
    return Unavailable(
        f"{top} is not installed: this installation has the command line's packages, and the command needs more",
        remedy="pip install 'mesos_gpu[scheduler]' for a scheduler, 'mesos_gpu[agent]' on a GPU host, "
        "'mesos_gpu[all]' for mesos-gpu up",
    )


class Group(Table):
    """The one place where an error becomes text on stderr and an exit code."""

    table = COMMANDS
    headings = HEADINGS
    words = WORDS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, and the options below them."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Tell the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl(list(EXIT_CODES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run, and render what went wrong."""
        try:
            return super().invoke(ctx)
        except MesosGpuError as err:
            click.echo(f"Error: {clean_lines(str(err))}", err=True)
            ctx.exit(err.exit_code)
        except ModuleNotFoundError as err:
            absent = _of_an_extra(err)
            click.echo(f"Error: {clean_lines(str(absent))}", err=True)
            ctx.exit(absent.exit_code)
        except Terminated:
            ctx.exit(143)
        except KeyboardInterrupt:
            click.echo(err=True)  # the shell's prompt should not follow ^C
            ctx.exit(130)
        except BrokenPipeError:
            _drop_output()
            ctx.exit(141)
        except OSError as err:  # a full disk under stdout, an unreadable file
            _drop_output()
            click.echo(f"Error: {clean_lines(str(err))}", err=True)
            ctx.exit(74)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@url_option
@context_options
@tls_options
@home_option
@click.version_option(
    mesos_gpu.__version__, "-V", "--version", prog_name="mesos-gpu", message="%(prog)s %(version)s"
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """GPU jobs on Apache Mesos.

    Commands talk to the scheduler of a running `mesos-gpu up`, or to the one that --url,
    MESOS_GPU_URL or a context names. Wherever a job's ID is asked for, the start of it is enough, or the name
    that the job was given.

    A command that ends or deletes something asks first if stdin is a terminal; with --yes it does not. Without a
    terminal it does as asked, but one that works out itself what changes (a document, filters of kill, roles
    and reservations of Mesos, hosts of a cluster, a framework) then needs --yes.
    """
    ctx.ensure_object(App)
    if ctx.invoked_subcommand is None:
        click.echo(_first_words(ctx))


def _first_words(ctx: click.Context) -> str:
    """Return what is printed where no command is named: the first commands, and where the others are."""
    formatter = ctx.make_formatter()
    formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...")
    width = max(len(name) for name, _ in _MORE)
    sections = {title: [(name, COMMANDS[name][1]) for name in names] for title, names in FIRST.items()}
    for title, rows in {**sections, "More": list(_MORE)}.items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), line) for name, line in rows])
    return formatter.getvalue().rstrip("\n")
