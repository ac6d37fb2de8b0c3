"""Parts shared by all commands: the connection to the scheduler, common options and exit codes."""

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
    "0": "success",
    "1": "failure; diff: there are differences; access can: no",
    "2": "wrong usage; diff: any error",
    "65": "invalid data: each problem is printed with its place",
    "66": "not found",
    "69": "the scheduler cannot be reached",
    "73": "conflict: an ambiguous ID, a job without output yet, an app that is locked or was just changed",
    "74": "a file or stream cannot be read or written",
    "75": "a limit of the user or queue is reached: retry later",
    "76": "the server is not a mesos-gpu scheduler, or cannot prove it",
    "77": "not logged in (mesos-gpu login), or without the right",
    "78": "a setting, an option or its file is wrong",
    "124": "wait, --wait: timed out",
    "125": "run, wait: the job failed without an exit code (not started, or lost)",
    "130": "ended by Ctrl-C; run: the job was killed",
    "141": "the output was closed; run: the job was killed",
    "143": "ended by SIGTERM; run, wait: the job was killed",
    "N": "run, wait: the job's own exit code; 128+N after signal N",
}

_F = TypeVar("_F", bound=Callable[..., Any])


class App:
    """Context of a command: the choice of the scheduler and of files.

    Args:
        url: Value of --url; None to find the scheduler by other means.
    """

    def __init__(self, url: str | None = None) -> None:
        self.url, self.files = url, Files()
        self.context: str | None = None
        self.insecure = False

    @property
    def choice(self) -> Choice:
        """Options that choose the scheduler."""
        return Choice(self.url, self.context, self.insecure)

    def client(self) -> "Client":
        """Return a client, which is closed when the command ends.

        Raises:
            Unavailable: No scheduler is configured.
            BadConfiguration: A certificate file cannot be used.
        """
        from mesos_gpu.cli.client import Client  # imports requests: 80 ms that --help should not take

        return click.get_current_context().with_resource(Client(self.reach(), notice=output.note))

    def reach(self, *, shows: bool = True) -> Reach:
        """Return the scheduler's address and TLS settings, and with `shows` the caller's credentials.

        Raises:
            Unavailable: No scheduler is configured.
        """
        return find_reach(self.choice, self.files, shows=shows)

    def marathon(self) -> "Marathon":
        """Return the Marathon interface of the chosen scheduler.

        Raises:
            Unavailable: No scheduler is configured.
        """
        from mesos_gpu.cli.marathon import Marathon

        return Marathon(self.client())


def _keep_url(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    app = ctx.ensure_object(App)
    app.url = value or app.url


# This option is accepted before and after the command's name, since people write both.
url_option: Final = click.option(
    "--url",
    type=URL,
    metavar="URL",
    expose_value=False,
    is_eager=True,
    callback=_keep_url,
    help="URL of the scheduler; default: MESOS_GPU_URL, else the context's, else that of the running `mesos-gpu up`.",
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
    """Add --cacert, --cert and --key to a command. No option turns verification off, on purpose."""
    for option in (
        _file_option(
            "--key", "PEM file of the key of --cert, if it is in another file; default: MESOS_GPU_KEY."
        ),
        _file_option(
            "--cert",
            "PEM file of the client certificate, if the scheduler needs one; default: MESOS_GPU_CERT.",
        ),
        _file_option(
            "--cacert",
            "PEM file of the authorities trusted for the scheduler's certificate; default: MESOS_GPU_CACERT, "
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
    """Add --context and --insecure-http-token to a command."""
    function = click.option(
        "--insecure-http-token",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_keep_insecure,
        help="Send tokens unencrypted also to other machines: everyone on the network path can use them.",
    )(function)
    return click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_keep_context,
        help="Context to use (mesos-gpu context); default: MESOS_GPU_CONTEXT, else the current one.",
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
    help="Directory of the cluster of `mesos-gpu up`; default: MESOS_GPU_HOME, else one in your home directory.",
)

#: See `output.ask`.
yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, in the form of the REST interface."
)


def api_command(function: _F) -> _F:
    """Add --url to a command, and pass it the `App` as its first argument."""
    return cast(_F, url_option(click.pass_obj(function)))
