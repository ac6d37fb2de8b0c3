"""`mesos-gpu up` and `down`: the whole platform on this machine, real Mesos and simulated GPUs included."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

import click

from isolator.host.not_started import TRIAL
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.adapters.simulated.use import with_scripts
from mesos_gpu.adapters.simulated_gpus import MODELS
from mesos_gpu.adapters.tls.here import TlsHere
from mesos_gpu.cli import output
from mesos_gpu.cli.app import home_option, yes_option
from mesos_gpu.cli.demo.command import left_behind
from mesos_gpu.cli.locate import Running, running, state_home, up_file
from mesos_gpu.errors import BadConfiguration, Conflict, MesosGpuError, Unavailable
from mesos_gpu.local.cluster import Devices, lack_of_images
from mesos_gpu.local.processes import Process, private_log
from mesos_gpu.local.stack import IMAGES, REGISTRY, SCRATCH, NodeSpec, SchedulerProcess, Stack, clean_up
from mesos_gpu.model.jobs.permits import ROOTS, Root
from mesos_gpu.model.nodes.gpu_names import models_of
from mesos_gpu.model.words import counted
from mesos_gpu.scheduler.options.parse import NumberRange
from mesos_gpu.wire.body import parsed

LOOK_S: Final = 0.5
REVIVE_S: Final = 1.0  # a part that ends at once must not be started without a pause
START_S: Final = 120.0  # the first start downloads Mesos
STOP_S: Final = 60.0
USER_POOL: Final = "60000-60999"
MODEL: Final = "NVIDIA A100-SXM4-80GB"
_STEP: Final = "waiting for "  # what a line of a step begins with
_ATTRIBUTE: Final = re.compile(r"[A-Za-z0-9_.-]+")  # a name or a value


def directory() -> Path:
    """Return the directory of the cluster of `up`.

    Users of jobs must be able to enter it, so for root it is not below /root.
    """
    if os.geteuid() == 0 and not os.environ.get("MESOS_GPU_HOME"):
        return Path("/var/lib/mesos-gpu/up")
    return state_home() / "up"


def _receivers(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    from mesos_gpu.adapters.hooks.receivers import receivers

    try:
        receivers(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return given


def _scripts(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> dict[str, Any]:
    try:
        scripts: dict[str, Any] = {} if path is None else parsed(path.read_text())
        with_scripts(scripts)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from error
    return scripts


def _simulated(name: str) -> str:
    """Return the model to simulate that a name means; the name if it means none or several."""
    models = models_of((name,), frozenset(MODELS))
    return models[0] if len(models) == 1 else name


def _attributes(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Read NAME=VALUE[,...], each name once."""
    attributes: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, _, listed = text.partition("=")
        values = tuple(listed.split(","))
        if not all(_ATTRIBUTE.fullmatch(word) for word in (name, *values)):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE[,...], as rack=r1,r2")
        if name in attributes:
            raise click.BadParameter(f"attribute {name} is given twice; list its values with commas")
        attributes[name] = values
    return attributes


@click.command()
@click.option("--agents", default=2, show_default=True, type=click.IntRange(1, 200), help="Mesos agents.")
@click.option("--gpus", default=4, show_default=True, type=click.IntRange(0, 64), help="GPUs of each agent.")
@click.option(
    "--gpu-model",
    multiple=True,
    metavar="NAME",
    help=f"Model of the GPUs, as T4 or A100; repeated, the agents take turns.  [default: {MODEL}]",
)
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE[,...]",
    callback=_attributes,
    help="Attribute of the agents, as rack=r1,r1,r2: the agents take the values in turns; may be repeated.",
)
@click.option("--topology", metavar="LIST", help="Levels of the fabric: see mesos-gpu scheduler --help.")
@click.option(
    "--cpus",
    default=32.0,
    show_default=True,
    type=NumberRange(0, min_open=True),
    help="CPUs that each agent offers.",
)
@click.option("--mem", "mem_mib", default=131072, show_default=True, help="Memory of each agent, in MiB.")
@click.option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port of the REST interface and dashboard, on 127.0.0.1.",
)
@click.option(
    "--images",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of `docker save` archives NAME:TAG.tar, for jobs with --image; needs root.  [default: one of the "
    "cluster's own, as root; with cgroup v1 only without --secure]",
)
@click.option(
    "--no-images", is_flag=True, help="Keep no directory of images; each job starts a little faster."
)
@click.option(
    "--volume-root",
    multiple=True,
    metavar="PATH[:ro]",
    help="Directory of which jobs may have what is in it, by --volume, besides the cluster's own scratch directory; "
    "ro: to read only; may be repeated.",
)
@click.option("--allow-root", type=click.Choice(ROOTS),
              help="Let jobs run as root: in an image, or (host) also without, as root of the host.")  # fmt: skip
@click.option(
    "--mesos-webui",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="src/webui of the sources of Apache Mesos 1.11.0: the master serves that page instead of this package's.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path, dir_okay=False),
              help="PEM file of a certificate for localhost or 127.0.0.1: the interface speaks https.")  # fmt: skip
@click.option("--tls-key", type=click.Path(path_type=Path, dir_okay=False), help="PEM file of its key.")
@click.option("--secure", is_flag=True,
              help="Ask who they are: the scheduler by socket or token, Mesos by name and secret.")  # fmt: skip
@click.option("--webhook-to", multiple=True, metavar="HOST[:PORT]", callback=_receivers,
              help="Address to which webhooks may be sent, for example 127.0.0.1:9000; may be repeated.")  # fmt: skip
@click.option("--use", "scripts", metavar="FILE", callback=_scripts,
              type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="JSON of what jobs do on their GPUs, by patterns of their ids (docs/simulation.md).")  # fmt: skip
@home_option
@click.option("-d", "--detach", is_flag=True, help="Return when it is up, and leave it running.")
def up(
    agents: int,
    gpus: int,
    gpu_model: tuple[str, ...],
    attributes: dict[str, tuple[str, ...]],
    topology: str | None,
    cpus: float,
    mem_mib: int,
    port: int,
    images: Path | None,
    no_images: bool,
    volume_root: tuple[str, ...],
    mesos_webui: Path | None,
    allow_root: str | None,
    secure: bool,
    webhook_to: tuple[str, ...],
    scripts: dict[str, Any],
    tls_cert: Path | None,
    tls_key: Path | None,
    detach: bool,
) -> None:
    """Start Mesos, agents with simulated GPUs and the scheduler on this machine.

    It runs until Ctrl-C or `mesos-gpu down`, and then leaves nothing behind. To see a GPU fail, edit its
    "health" in the inventory file of its node; the files' directory is printed at the start.

    Each agent has an address of its own, 127.0.0.11 and so on, which is its host name, and ports of its own. A user
    may have several clusters: each needs a --home (or MESOS_GPU_HOME) and a --port of its own.

    \b
      mesos-gpu up --detach --agents 3 --gpus 8
    """
    _refuse_second()
    _refuse_used(port)
    _refuse_closed(directory())
    tls = _tls(tls_cert, tls_key)
    models = [_simulated(name) for name in gpu_model] or [MODEL]
    nodes = [
        NodeSpec(
            gpus,
            models[i % len(models)],
            cpus,
            mem_mib,
            attributes={name: values[i % len(values)] for name, values in attributes.items()},
            scripts=scripts,
        )
        for i in range(agents)
    ]
    arguments = [word for receiver in webhook_to for word in ("--webhook-to", receiver)]
    arguments += ["--topology", topology] if topology else []
    by_executor = os.geteuid() == 0 and bool(lack_of_images())  # Mesos cannot run images here
    arguments += _of_users(pooled=secure and (images is None or by_executor))
    if detach:
        _start_detached()
        return
    made: dict[Path, int] = {}
    if images is None and not no_images and not _lack_of_images(secure=secure):
        images = directory() / IMAGES
        made[images] = 0o755
    if os.geteuid() == 0:  # others cannot mount
        scratch = directory() / SCRATCH
        made[scratch], volume_root = 0o1777, (*volume_root, str(scratch))
    given = {"MESOS_GPU_VOLUME_ROOTS": ",".join(volume_root), TRIAL: "1"}
    if images and by_executor:
        given |= {REGISTRY: str(images.resolve())}
    devices: Devices = "mesos" if images and not by_executor else ""
    stack = Stack(
        directory(),
        nodes,
        port=port,
        allow_root=Root(allow_root or Root.NOWHERE),
        images=None if by_executor else images,
        devices=devices,
        executor_environment=given,
        master_flags={"webui_dir": str(mesos_webui.resolve())} if mesos_webui else None,
        secure=secure,
        tls=tls,
        scheduler_arguments=arguments,
        made=made,
    )
    output.note(f"starting Mesos with {counted(agents, 'agent')}")
    _run(stack)


def _lack_of_images(*, secure: bool) -> str:
    """Return why jobs have no images unless --images is given, in words; "" if they have."""
    lack = lack_of_images()
    if lack:
        return "" if os.geteuid() == 0 else lack
    if secure:
        return "--secure, where a job's user may have no account; with --images they have accounts"
    return ""


def _of_users(*, pooled: bool) -> list[str]:
    """Return the scheduler's options for users: all hosts are this machine. `pooled`: whether jobs that name no user
    get a uid each, so that whoever has a token can run jobs; Mesos runs images as users with an account only."""
    return ["--same-accounts", *(["--user-pool", USER_POOL] if pooled and os.geteuid() == 0 else [])]


def _run(stack: Stack) -> None:
    stop = [False]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.__setitem__(0, True))
    stack.start(_tell_step)
    output.status_line.clear()
    try:
        _write_up_file(stack)
        _say_where(stack)
        _say_for_jobs(stack)
        while not stop[0]:
            _revive(stack)
            time.sleep(LOOK_S)
    finally:
        _said("stopping")
        try:
            stack.stop()
        finally:
            up_file().unlink(missing_ok=True)


def _tell_step(what: str) -> None:
    """Show what the start waits for: on a terminal in place of the previous step, elsewhere on a line of its own."""
    if output.status_line.live:
        output.status_line.show(f"{_STEP}{what}")
    else:
        output.note(f"{_STEP}{what}")


def _refuse_second() -> None:
    stack = running()
    if stack is not None:
        raise Conflict(
            f"it is up already: {stack.url}, process {stack.pid}",
            remedy="use that one, or end it first with `mesos-gpu down`",
        )


def _said(text: str) -> None:
    """Tell who reads; on a full disk the log of `up --detach` takes no more, and nothing ends for that."""
    with contextlib.suppress(OSError):
        output.note(text)


def _refuse_used(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise Conflict(
                f"cannot listen on 127.0.0.1:{port}: {os.strerror(error.errno or 0)}",
                remedy="name another with --port, or end what has it",
            ) from error


def _refuse_closed(directory: Path) -> None:
    """Jobs of other users must be able to pass it."""
    if os.geteuid() != 0:
        return
    for path in directory.parents:
        if path.exists() and not path.stat().st_mode & stat.S_IXOTH:
            raise BadConfiguration(
                f"the cluster's directory is below {path}, which the users that jobs run as cannot pass",
                remedy=f"name another with --home or MESOS_GPU_HOME, or: chmod o+x {path}",
            )


def _revive(stack: Stack) -> None:
    """Restart processes of the cluster that have ended; they continue with their saved state.

    If a start fails, for example because the disk is full, it is tried again at the next call.
    """
    parts: list[Process | SchedulerProcess] = [stack.cluster.master, *stack.cluster.agents, stack.scheduler]
    for process in parts:
        if not process.running:
            _said(f"{process.log.parent.name} ended: starting it again")
            try:
                process.start()
            except OSError as error:
                _said(f"{process.log.parent.name} cannot be started: {error.strerror}; trying again")
            time.sleep(REVIVE_S)


def _tls(certificate: Path | None, key: Path | None) -> TlsHere | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadConfiguration("--tls-cert and --tls-key are nothing without each other", remedy="give both")
    return TlsHere.of(certificate, key)


def _write_up_file(stack: Stack) -> None:
    path = up_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    ticks = start_ticks(os.getpid())
    body = {"url": stack.url, "pid": os.getpid(), "started_at": time.time(), "start_ticks": ticks}
    body |= {} if stack.tls is None else {"cacert": str(stack.tls.certificate)}
    body |= {} if stack.socket is None else {"socket": str(stack.socket)}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(body) + "\n")
    part.rename(path)


def _say_where(stack: Stack) -> None:
    output.line(f"dashboard and REST interface  {stack.url}")
    output.line(f"Mesos master                  {stack.cluster.master.url}")
    first, last = stack.cluster.fixed_ports
    output.line(f"ports of every node           {first} to {last}, and others of each node")
    if stack.secure:
        output.line(f"name and secret for Mesos     {stack.secure.operator}")
        if os.geteuid() != 0:
            output.note(
                "without root, tasks run as you, and can read these secrets: --secure keeps others out alone"
            )
    output.line(f"simulated GPUs                {stack.inventory(1).parent}")
    output.line(f"logs                          {stack.scheduler.log} and {stack.cluster.directory}/*/log")
    sys.stdout.flush()


def _say_for_jobs(stack: Stack) -> None:
    """Tell where jobs have volumes and images from, or why they have none."""
    if os.geteuid() == 0:
        scratch = directory() / SCRATCH
        output.line(f"volume for jobs               {scratch}, as --volume {scratch}:work")
    archives = stack.archives
    if archives is None:
        said = f"none: {_lack_of_images(secure=stack.secure is not None) or '--no-images'}"
    else:
        said = f"{archives}: docker save -o {archives}/NAME:TAG.tar NAME:TAG"
    output.line(f"images for jobs               {said}")
    sys.stdout.flush()


def _start_detached() -> None:
    """Run this very command again, without --detach, in a session of its own."""
    arguments = [word for word in sys.argv[1:] if word not in ("-d", "--detach")]
    log = state_home() / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with private_log(log) as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "mesos_gpu", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    with log.open("rb") as written:
        told = _Told(written)
        deadline = time.monotonic() + START_S
        while running() is None:
            told.follow()
            if process.poll() is not None:
                told.follow()
                raise MesosGpuError(f"it did not come up:\n{told.text()}", remedy="correct what it says")
            if time.monotonic() > deadline:
                process.terminate()
                raise Unavailable(f"not up within {START_S:g} s", remedy=f"look into {log}")
            time.sleep(0.1)
        told.follow()
    output.verbatim(told.text().encode())


class _Told:
    """The log of `up` in the background: its notes are shown as they come, the rest is kept."""

    def __init__(self, log: IO[bytes]) -> None:
        self._file, self._part, self._kept = log, b"", list[str]()

    def follow(self) -> None:
        """Show the notes that came since the last call; of a step only while it lasts, on a terminal."""
        *lines, self._part = (self._part + self._file.read()).split(b"\n")
        for line in (each.decode(errors="replace") for each in lines):
            words = line.removeprefix(output.OURS)
            if words == line:
                self._kept.append(line)
            elif words.startswith(_STEP):
                _tell_step(words.removeprefix(_STEP))
            else:
                output.note(words)

    def text(self) -> str:
        """Return the collected text other than notes, and clear the status line, so that it can be printed."""
        output.status_line.clear()
        return "\n".join([*self._kept, self._part.decode(errors="replace")]).strip()


@click.command()
@yes_option
@home_option
def down(yes: bool) -> None:
    """Stop what `mesos-gpu up` started, and remove its traces."""
    stack = running()
    if stack is None:
        up_file().unlink(missing_ok=True)
        had = directory().exists()
        clean_up(directory())  # of a cluster whose `up` was killed
        had |= _clean_up_demos()
        output.line("it was not up; what an earlier one left is removed" if had else "it is not up")
        return
    output.ask(f"Stop the cluster of {directory()}, and remove its jobs and its state?", yes=yes)
    os.kill(stack.pid, signal.SIGTERM)
    _wait_for_end(stack)
    output.line("down")


def _clean_up_demos() -> bool:
    """Remove clusters of demos that were killed; return whether there were any."""
    had = False
    for path in left_behind():
        with contextlib.suppress(Conflict):  # it runs
            clean_up(path)
            path.parent.rmdir()
            had = True
    return had


def _wait_for_end(stack: Running) -> None:
    deadline = time.monotonic() + STOP_S
    while start_ticks(stack.pid) == stack.start_ticks:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"process {stack.pid} has not ended within {STOP_S:g} s",
                remedy=f"kill -9 {stack.pid}, then run `mesos-gpu down` again to clean up",
            )
        time.sleep(0.05)
