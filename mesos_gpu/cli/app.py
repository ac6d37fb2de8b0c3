"""What the commands share: the way to the scheduler, their common options, their exit codes."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.reach.reach import Choice, Files, Reach, find_reach
from mesos_gpu.cli.types import URL

if TYPE_CHECKING:
    from mesos_gpu.cli.client import Client
    from mesos_gpu.cli.marathon import Marathon

EXIT_CODES: Final = {
    "0": "it worked",
    "1": "it failed; diff: there are differences; access can: no",
    "2": "wrong usage; diff: trouble of any kind",
    "65": "wrong data: each problem is printed with its place",
    "66": "not found",
    "69": "the scheduler cannot be reached",
    "73": "conflict: an ambiguous ID, a job without output yet, an app that is locked or was changed meanwhile",
    "74": "a file or stream cannot be read or written",
    "75": "a limit of the user or queue is reached: try again later",
    "76": "what answers is not a mesos-gpu scheduler, or cannot prove that it is",
    "77": "no name is proved, or it has not the right: mesos-gpu login",
    "78": "a setting, an option or a file of one cannot be used as it is",
    "124": "wait, --wait: the time was over",
    "125": "run, wait: the job failed and its command has no exit code (not started, or lost)",
    "130": "ended by Ctrl-C; run: that has killed the job",
    "141": "the reader of the output has gone; run: that has killed the job",
    "143": "ended by SIGTERM; run, wait: the job was killed",
    "N": "run, wait: the job's own exit code; 128+N after signal N",
}

_F = TypeVar("_F", bound=Callable[..., Any])


class App:
    """What click passes to each command: where the scheduler is."""

    def __init__(self, url: str | None = None) -> None:
        """`url` is what --url says; None: find it."""
        self.url, self.files = url, Files()
        self.context: str | None = None
        self.insecure = False

    @property
    def choice(self) -> Choice:
        """What the options say of where the scheduler is."""
        return Choice(self.url, self.context, self.insecure)

    def client(self) -> "Client":
        """A client that is closed when the command ends.

        Raises:
            Unavailable: Nothing says where a scheduler is.
            BadConfiguration: A file of certificates cannot be used.
        """
        from mesos_gpu.cli.client import Client  # brings requests: 80 ms that --help need not spend

        return click.get_current_context().with_resource(Client(self.reach(), notice=output.note))

    def reach(self, *, shows: bool = True) -> Reach:
        """Where the scheduler is, and whom to believe there; `shows`: and what proves who asks.

        Raises:
            Unavailable: Nothing says where one is.
        """
        return find_reach(self.choice, self.files, shows=shows)

    def marathon(self) -> "Marathon":
        """The scheduler of these options, by Marathon's interface.

        Raises:
            Unavailable: Nothing says where a scheduler is.
        """
        from mesos_gpu.cli.marathon import Marathon

        return Marathon(self.client())


def _keep_url(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    app = ctx.ensure_object(App)
    app.url = value or app.url


# Stands before and after the command's name: people write both.
url_option: Final = click.option(
    "--url",
    type=URL,
    metavar="URL",
    expose_value=False,
    is_eager=True,
    callback=_keep_url,
    help="The scheduler's address; default: MESOS_GPU_URL, else the context's, else the running `mesos-gpu up`.",
)


def _keep_file(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    app = ctx.ensure_object(App)
    if value is not None and param.name is not None:
        app.files = replace(app.files, **{param.name: value})


def _file_option(name: str, help_text: str) -> Callable[[_F], _F]:
    return click.option(
        name, metavar="FILE", expose_value=False, is_eager=True, callback=_keep_file, help=help_text
    )


def tls_options(function: _F) -> _F:
    """Give a command --cacert, --cert and --key. There is none that turns verification off."""
    for option in (
        _file_option(
            "--key", "PEM file of the key of --cert, if it is not in there; default: MESOS_GPU_KEY."
        ),
        _file_option(
            "--cert", "PEM file of the certificate to show, if one is asked for; default: MESOS_GPU_CERT."
        ),
        _file_option(
            "--cacert",
            "PEM file of the authorities that the scheduler's certificate may come from; default: MESOS_GPU_CACERT, "
            "else those of this host.",
        ),
    ):
        function = option(function)
    return function


def _keep_context(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    app = ctx.ensure_object(App)
    app.context = value or app.context


def _keep_insecure(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(App).insecure |= value


def context_options(function: _F) -> _F:
    """Give a command --context and --insecure-http-token."""
    function = click.option(
        "--insecure-http-token",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_keep_insecure,
        help="Send a token in the clear, also beyond this machine: everybody on the way can use it.",
    )(function)
    return click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_keep_context,
        help="The scheduler of that name (mesos-gpu context); default: MESOS_GPU_CONTEXT, else the current one.",
    )(function)


def _keep_home(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value:
        os.environ["MESOS_GPU_HOME"] = os.path.abspath(value)


home_option: Final = click.option(
    "--home",
    type=click.Path(file_okay=False),
    metavar="DIR",
    expose_value=False,
    is_eager=True,
    callback=_keep_home,
    help="Directory of the cluster of `up`; default: MESOS_GPU_HOME, else the user's own.",
)

yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")  # see `output.ask`

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, as the REST interface has it."
)


def api_command(function: _F) -> _F:
    """Give a command --url and the `App` as its first argument."""
    return cast(_F, url_option(click.pass_obj(function)))
