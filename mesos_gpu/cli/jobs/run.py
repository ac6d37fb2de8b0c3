"""`mesos-gpu run`: a job as if its command ran here."""

from collections.abc import Mapping
from typing import Any

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.types import (
    COMPUTE_CAPABILITY,
    CONSTRAINT,
    CONTROLS,
    DRIVER,
    DURATION,
    ENV,
    GPUS,
    LABEL,
    MEMORY,
)
from mesos_gpu.model.jobs.job import (
    HIGHEST_PRIORITY,
    MOST_TASKS,
    Engine,
    OnGpuFailure,
    OnMemberFailure,
    Placement,
)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--name", help="Name, of a-z, 0-9, `.` and `-`; default: from the command.")
@click.option(
    "--cpus", metavar="N", type=click.FloatRange(min=0, min_open=True), help="CPUs, as 0.5; default: 1."
)
@click.option("--mem", type=MEMORY, help="Memory in MiB, or with a unit, as 2GiB; default: 128.")
@click.option(
    "--disk", type=MEMORY, help="Disk for its sandbox in MiB, or with a unit, as 2GiB; default: none."
)
@click.option("--gpus", type=GPUS, help="Whole GPUs, of each task; default: 0.")
@click.option("--gpu-model", multiple=True, metavar="MODEL", help="GPU model; again for a second choice.")
@click.option("--gpu-memory", type=MEMORY, help="Least memory of each GPU in MiB, or with a unit, as 40GiB.")
@click.option("--compute-capability", type=COMPUTE_CAPABILITY, help="Oldest that will do, as 8.0.")
@click.option("--tasks", metavar="N", type=click.IntRange(1, MOST_TASKS),
              help="So many tasks, all at once or none, each with all of the above; default: 1.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), multiple=True, metavar="N",
              help="Port of the host, as PORT0 and so on; 0: any; may be repeated.")  # fmt: skip
@click.option("--fetch", metavar="URI", multiple=True,
              help="File for the sandbox; an archive is extracted there; may be repeated.")  # fmt: skip
@click.option("--volume", metavar="HOST:PATH[:ro]", multiple=True,
              help="Path of the host, and where the task has it; ro: to read only; may be repeated.")  # fmt: skip
@click.option("--on-member-failure", type=click.Choice([choice.value for choice in OnMemberFailure]),
              help="If one of several tasks fails: start all again, or end the job; default: restart.")  # fmt: skip
@click.option("--env", type=ENV, multiple=True, help="Environment variable; may be repeated.")
@click.option("--user", help="User to run as on the agent.")
@click.option("--label", type=LABEL, multiple=True, help="Label; may be repeated.")
@click.option(
    "--max-attempts", metavar="N", type=click.IntRange(min=1), help="Tries if the command fails; default: 1."
)
@click.option("--timeout", type=DURATION, help="Longest run time of one attempt, as 90s or 2h.")
@click.option(
    "--image", metavar="IMAGE", help="Docker image to run in, as repo/name:tag; without CMD, what it runs."
)
@click.option("--pull", is_flag=True, help="Fetch the image again, even if the host has one of that name.")
@click.option("--control-access", type=CONTROLS, metavar="LIST",
              help="What commands the cluster and it may reach, of api,master, as its operator allows.")  # fmt: skip
@click.option("--container-engine", type=click.Choice([engine.value for engine in Engine]),
              help="What runs the image; default: the scheduler's choice.")  # fmt: skip
@click.option("--on-gpu-failure", type=click.Choice([choice.value for choice in OnGpuFailure]),
              help="If a GPU of it breaks: start it elsewhere, say so, or nothing; default: restart.")  # fmt: skip
@click.option("--min-driver", type=DRIVER, help="Oldest NVIDIA driver that may run it, as 535 or 535.104.05.")
@click.option("--placement", type=click.Choice([choice.value for choice in Placement]),
              help="Which of the nodes that fit; default: the scheduler's choice.")  # fmt: skip
@click.option("--priority", metavar="N", type=click.IntRange(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
              help="Higher is served first, from -1000 to 1000; default: 0.")  # fmt: skip
@click.option("--preemptible", is_flag=True, help="A job of higher priority may end it; it is queued again.")
@click.option("--queue", metavar="NAME", help="Queue whose GPU limit it counts against; default: default.")
@click.option("--app", "app_name", metavar="NAME", help="App that the job is one of, for its constraints.")
@click.option("--constraint", type=CONSTRAINT, multiple=True,
              help="Which nodes will do, as hostname:UNIQUE or rack:LIKE:r[1-3]; may be repeated.")  # fmt: skip
@click.option("--near", metavar="APP", help="Only on a node where a job of that app runs.")
@click.option("--away", metavar="APP", help="On no node where a job of that app runs.")
@click.option("--shell", is_flag=True, help="Give the words to /bin/sh -c as one line.")
@click.option("-d", "--detach", is_flag=True, help="Print the job's ID and leave it to itself.")
@json_option
@click.argument("cmd", metavar="[CMD...]", nargs=-1, type=click.UNPROCESSED)
@api_command
def run(app: App, detach: bool, as_json: bool, **options: Any) -> None:
    """Run a command as a job and stay with it.

    Its output appears here as it is written, and its exit code becomes that of this command. Ctrl-C and SIGTERM
    kill the job and wait for its end; a second one leaves at once. If this command itself ends by SIGKILL or
    SIGHUP, the job runs on. A job gets no stdin: data that waits there is refused.

    \b
      mesos-gpu run --gpus 1 --mem 4GiB -- python train.py --epochs 3
      mesos-gpu run --gpus 2 --gpu-model A100 --gpu-model V100 --shell -- 'nvidia-smi -L | wc -l'
    """
    from mesos_gpu.cli.interrupt import held_interrupt
    from mesos_gpu.cli.jobs.attached import submit_and_stay
    from mesos_gpu.cli.stdin import refuse_stdin

    if as_json and not detach:
        raise click.UsageError("--json needs --detach: without it, stdout is the job's own")
    if not options["cmd"] and (options["image"] is None or options["shell"]):
        raise click.UsageError("Missing argument 'CMD...'.")
    refuse_stdin()
    request = request_of(**options)
    client = app.client()
    if not detach:
        click.get_current_context().exit(submit_and_stay(client, request))
    with held_interrupt():
        job = client.submit(request)
        output.document(job) if as_json else output.line(job["id"])


def request_of(
    *,
    cmd: tuple[str, ...],
    shell: bool,
    mem: int | None,
    disk: int | None,
    timeout: float | None,
    gpu_model: tuple[str, ...],
    gpu_memory: int | None,
    preemptible: bool,
    pull: bool,
    app_name: str | None,
    constraint: tuple[list[str], ...],
    port: tuple[int, ...],
    fetch: tuple[str, ...],
    volume: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    label: tuple[tuple[str, str], ...],
    **rest: Any,
) -> Mapping[str, object]:
    """The options as a job request; what was not given is left to the scheduler's defaults."""
    request = {
        **rest,
        "command": " ".join(cmd) if shell else None,
        "argv": None if shell else list(cmd) or None,
        "mem_mib": mem,
        "disk_mib": disk,
        "timeout_s": timeout,
        "gpu_model": list(gpu_model) or None,
        "gpu_memory_mib": gpu_memory,
        "preemptible": preemptible or None,
        "pull": pull or None,
        "app": app_name,
        "constraints": list(constraint) or None,
        "ports": list(port) or None,
        "fetch": list(fetch) or None,
        "volumes": list(volume) or None,
        "env": dict(env) or None,
        "labels": dict(label) or None,
    }
    return {name: value for name, value in request.items() if value is not None}
