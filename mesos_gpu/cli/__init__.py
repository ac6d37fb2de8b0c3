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

# Commands by name: the module with the function of that name, and the command's line in --help.
# The line is repeated here so that --help imports no command; a test compares it with the docstring.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("mesos_gpu.cli.jobs.run", "Run a command as a job, and follow it until it ends."),
    "submit": ("mesos_gpu.cli.jobs.submit", "Submit the jobs of a file."),
    "uploads": ("mesos_gpu.cli.code.uploads", "Uploads: your code archives on the scheduler."),
    "storage": ("mesos_gpu.cli.files.storage", "Named volumes of jobs: data on a host that outlives jobs."),
    "notebook": (
        "mesos_gpu.cli.sessions.notebook",
        "Run a notebook server as a job, and open a local URL to it.",
    ),
    "ps": ("mesos_gpu.cli.jobs.listing", "List jobs, running ones first."),
    "show": ("mesos_gpu.cli.jobs.commands", "Show all details of a job."),
    "why": ("mesos_gpu.cli.jobs.commands", "Explain why a job waits, and which node comes closest."),
    "logs": ("mesos_gpu.cli.jobs.logs", "Print the output of a job."),
    "attach": ("mesos_gpu.cli.sessions.attach", "Follow a running job, like run."),
    "wait": ("mesos_gpu.cli.jobs.commands", "Wait until jobs have ended."),
    "kill": ("mesos_gpu.cli.jobs.kill", "Kill jobs."),
    "resize": ("mesos_gpu.cli.jobs.resize", "Change the GPU share of a running job."),
    "keep": ("mesos_gpu.cli.queues.keep", "Keep a job from being ended for idle GPUs."),
    "exec": ("mesos_gpu.cli.channel.commands:exec_", "Run a command inside a running job."),
    "cp": ("mesos_gpu.cli.files.commands", "Copy files and directories from or to a job."),
    "ls": (
        "mesos_gpu.cli.files.commands",
        "List files of a job, in its sandbox or at a path.",
    ),
    "cat": ("mesos_gpu.cli.files.commands", "Print files of a job."),
    "port-forward": (
        "mesos_gpu.cli.channel.ports:port_forward",
        "Forward local ports to a running job.",
    ),
    "app": ("mesos_gpu.cli.apps.commands:app_group", "Apps: services that are kept running."),
    "deployment": ("mesos_gpu.cli.apps.deployments", "Deployments: changes of apps in progress."),
    "diff": ("mesos_gpu.cli.apps.diff", "Show what an app file would change, without changing it."),
    "service": ("mesos_gpu.cli.apps.service", "Services: names whose requests are split over apps."),
    "template": ("mesos_gpu.cli.apps.template", "Templates: apps for Marathon, ready to send."),
    "queue": (
        "mesos_gpu.cli.queues.commands",
        "List pending jobs in the order in which they are considered.",
    ),
    "budget": (
        "mesos_gpu.cli.records.budget",
        "Budgets: GPU hours per period, weighted by the cost of GPU models.",
    ),
    "reserve": (
        "mesos_gpu.cli.bookings.commands",
        "Book GPUs for a queue for a period of time.",
    ),
    "report": (
        "mesos_gpu.cli.records.report",
        "Reports of GPU usage, waiting times, idle GPUs and fairness.",
    ),
    "status": ("mesos_gpu.cli.cluster.overview", "Show the scheduler and a summary of the cluster."),
    "top": (
        "mesos_gpu.cli.top.command",
        "Watch GPUs, nodes, tasks or the queue live.",
    ),
    "gpus": ("mesos_gpu.cli.cluster.overview", "List the GPUs of the cluster and the jobs that hold them."),
    "nodes": ("mesos_gpu.cli.cluster.overview", "List the agents of the cluster."),
    "gpu": ("mesos_gpu.cli.cluster.gpu", "GPUs: their health and its history, drains, resets."),
    "node": (
        "mesos_gpu.cli.cluster.node",
        "Nodes: drains, devices for container engines, and the library that enforces shares.",
    ),
    "tasks": ("mesos_gpu.cli.cluster.tasks", "Tasks that run but are unknown to the scheduler."),
    "plan": ("mesos_gpu.cli.cluster.plan", "Plans that free capacity, without changing anything."),
    "volume": ("mesos_gpu.cli.host.volume", "Driver volumes: the NVIDIA libraries of this host, for tasks."),
    "events": (
        "mesos_gpu.cli.records.events",
        "List recent events, newest last.",
    ),
    "history": (
        "mesos_gpu.cli.records.history",
        "List ended jobs, also old ones, newest first.",
    ),
    "audit": ("mesos_gpu.cli.records.audit", "List who changed what and what was refused, newest last."),
    "webhook": ("mesos_gpu.cli.records.webhook", "Webhooks: URLs that receive events."),
    "login": (
        "mesos_gpu.cli.login.commands",
        "Log in to the scheduler, for the commands that follow.",
    ),
    "logout": ("mesos_gpu.cli.login.commands", "Log out: remove the login, and revoke its token."),
    "context": ("mesos_gpu.cli.login.context", "Contexts: named schedulers."),
    "whoami": ("mesos_gpu.cli.access.whoami", "Show who you are to the scheduler, and what you may do."),
    "access": (
        "mesos_gpu.cli.access.commands",
        "Access rules: roles, and the users and groups they are bound to.",
    ),
    "token": (
        "mesos_gpu.cli.access.token",
        "Tokens: credentials for programs.",
    ),
    "up": (
        "mesos_gpu.cli.local.up",
        "Start Mesos, agents with simulated GPUs and the scheduler on this machine.",
    ),
    "down": ("mesos_gpu.cli.local.up", "Stop what `mesos-gpu up` started, and remove its traces."),
    "demo": (
        "mesos_gpu.cli.demo.command",
        "Show the platform on this machine: start, run jobs of every kind, check, stop.",
    ),
    "simulate": (
        "mesos_gpu.cli.simulate.commands",
        "The real policies and the real engine, on a virtual clock.",
    ),
    "install": (
        "mesos_gpu.cli.host.install",
        "Write or print the files that hosts of a real cluster need; nothing is installed.",
    ),
    "doctor": (
        "mesos_gpu.cli.host.doctor",
        "Check that this host can run GPU tasks, and Mesos' authentication.",
    ),
    "cluster": (
        "mesos_gpu.cli.host.cluster",
        "Mesos, ZooKeeper and schedulers on the hosts that a file lists.",
    ),
    "mesos": ("mesos_gpu.cli.host.mesos", "Mesos on this host: a master, an agent."),
    "scheduler": ("mesos_gpu.scheduler.__main__", "Run the scheduler framework against a Mesos master."),
    "leader": (
        "mesos_gpu.cli.cluster.leader",
        "Show which of several schedulers leads, and how far behind the others are.",
    ),
    "backup": (
        "mesos_gpu.cli.cluster.backup",
        "Back up the scheduler's state to a file, even while it runs.",
    ),
    "restore": (
        "mesos_gpu.cli.cluster.backup",
        "Restore the scheduler's state from a backup, while the scheduler is stopped.",
    ),
    "upgrade": (
        "mesos_gpu.cli.upgrade.commands",
        "Upgrades: differences between the running release and this program.",
    ),
    "teardown": (
        "mesos_gpu.cli.host.teardown",
        "Tear down a framework at the master, which ends all its tasks for good.",
    ),
    "help": ("mesos_gpu.cli.completion:help_command", "Print what a command does."),
    "completion": ("mesos_gpu.cli.completion", "Print the completion script of a shell."),
}

# Headings of the groups of commands in --help, by the first command of each group.
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

# Commands that `mesos-gpu` alone prints, for new users, by purpose.
FIRST: Final[dict[str, tuple[str, ...]]] = {
    "Run a job": ("run", "submit", "kill"),
    "See what it does": ("ps", "why", "logs", "exec", "cp"),
    "Keep a service up": ("app",),
    "See the cluster": ("top", "nodes", "queue"),
}
_MORE: Final = (
    ("mesos-gpu help COMMAND", "what a command does, with examples"),
    ("mesos-gpu --help", f"list all {len(COMMANDS)} commands"),
    ("mesos-gpu up", "a cluster with simulated GPUs on this machine, to try all of it"),
)

# Words that other systems use for a command, and the command here.
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
    "secret": "run --secret; operators store secrets, see docs/secrets.md",
    "secrets": "run --secret; operators store secrets, see docs/secrets.md",
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
    """Send further output to /dev/null, because Python flushes stdout again at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_an_extra(error: ModuleNotFoundError) -> Unavailable:
    """Return the error for a missing package that only some commands need.

    Raises:
        ModuleNotFoundError: The missing module belongs to mesos_gpu or to Python, which is a defect.
    """
    top = (error.name or "mesos_gpu").partition(".")[0]
    if top in ("isolator", "marathon_templates", "mesos_gpu", "volumes") or top in sys.stdlib_module_names:
        raise error
    return Unavailable(
        f"{top} is not installed: only the command line's packages are installed, and this command needs more",
        remedy="pip install 'mesos_gpu[scheduler]' for a scheduler, 'mesos_gpu[agent]' on a GPU host, "
        "'mesos_gpu[all]' for mesos-gpu up",
    )


class Group(Table):
    """The top-level command group, which turns errors into text on stderr and an exit code."""

    table = COMMANDS
    headings = HEADINGS
    words = WORDS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and the options below them."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl(list(EXIT_CODES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, print an error and exit with its code."""
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
            click.echo(err=True)  # keeps the shell's prompt off the line with ^C
            ctx.exit(130)
        except BrokenPipeError:
            _drop_output()
            ctx.exit(141)
        except OSError as err:  # for example a full disk under stdout, or an unreadable file
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

    Commands talk to the scheduler of a running `mesos-gpu up`, or to the one given by --url, MESOS_GPU_URL or a
    context. A job can be given by its ID, by the start of the ID, or by its name.

    A command that ends or deletes something asks for confirmation if stdin is a terminal, unless --yes is given.
    Without a terminal it does not ask, but a command that works out itself what changes (a document, filters of
    kill, roles and reservations of Mesos, hosts of a cluster, a framework) then needs --yes.
    """
    ctx.ensure_object(App)
    if ctx.invoked_subcommand is None:
        click.echo(_first_words(ctx))


def _first_words(ctx: click.Context) -> str:
    """Return the text that `mesos-gpu` prints without a command: the most important commands, and where to look
    next."""
    formatter = ctx.make_formatter()
    formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...")
    width = max(len(name) for name, _ in _MORE)
    sections = {title: [(name, COMMANDS[name][1]) for name in names] for title, names in FIRST.items()}
    for title, rows in {**sections, "More": list(_MORE)}.items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), line) for name, line in rows])
    return formatter.getvalue().rstrip("\n")
