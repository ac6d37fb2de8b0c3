"""`mesos-gpu node cdi`: a Container Device Interface spec of this host's GPUs."""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
import yaml

from isolator.devices import cdi as specs
from isolator.devices.facts import read_driver, read_inventory
from isolator.gpus.ledger import Ledger, directory
from isolator.node.monitor import probe_from
from mesos_gpu.cli import output
from mesos_gpu.cli.records.on_host import recorded
from mesos_gpu.errors import Conflict, NotFound, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.policy.gpus.health import at_first_sight
from volumes.keys import data_of, default_path
from volumes.store import Store


@click.command()
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to replace atomically, such as /etc/cdi/nvidia.yaml; default: stdout.",
)
@click.option("--gpu", "gpus", multiple=True, metavar="UUID", help="Only this GPU; may be repeated.")
@click.option("--task", metavar="TASK_ID", help="Only the GPUs of a running task, as one device.")
@click.option(
    "--json/--yaml", "as_json", default=None, help="Format; default: by the name of --output, else JSON."
)
def cdi(path: Path | None, gpus: tuple[str, ...], task: str | None, as_json: bool | None) -> None:
    """Describe this host's GPUs for podman, Docker and containerd (CDI).

    Devices are named by UUID, by NVML index as in `nvidia-smi`, and `all`. Containers get the driver volume and the
    variables that jobs get for libraries and graphics; the driver's programs are in /usr/bin.
    """
    inventory = inventory_now()
    driver = read_driver(env=os.environ)
    volume = _volume(inventory)
    cards = {gpu.id: specs.Card(gpu.id, gpu.index, gpu.minor) for gpu in inventory.gpus}
    if task is not None:
        cards = _chosen(cards, _held(task))
    if gpus:
        cards = _chosen(cards, [GpuId(gpu) for gpu in gpus])
    if task is None:
        spec = specs.host_spec(driver, tuple(cards.values()), volume)
    else:
        spec = specs.task_spec(task, driver, tuple(cards.values()), volume)
    if as_json is None:
        as_json = path is None or path.suffix not in (".yaml", ".yml")
    text = json.dumps(spec, indent=2) + "\n" if as_json else yaml.safe_dump(spec, sort_keys=False)
    if path is None:
        click.echo(text, nl=False)
    else:
        with recorded("node cdi --output", f"file:{path}"):
            write(path, text)


def write(path: Path, text: str) -> None:
    """Replace a file atomically, readable for all: container engines watch its directory.

    Raises:
        OSError: The directory does not exist, or cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")  # without a suffix that CDI reads
    try:
        part.write_text(text)
        part.chmod(0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def inventory_now() -> Inventory:
    """Return the inventory that the monitor wrote since boot; on a host without a monitor, what NVML reports now."""
    try:
        return read_inventory(directory())
    except Unavailable:
        with contextlib.closing(probe_from(os.environ)) as probe:
            return at_first_sight(probe.survey(), time.time())


def _volume(inventory: Inventory) -> specs.Library | None:
    if inventory.driver_version is None:
        return None
    store = Store(default_path(os.environ))
    path = store.path_of(inventory.driver_version)
    build = store.current(inventory.driver_version)
    if build is not None:
        return specs.Library(str(path), tuple(sorted(os.listdir(build / "bin"))), data_of(build))
    output.note(f"there is no driver volume at {path}, so images must contain the driver's libraries")
    return None


def _held(task: str) -> tuple[GpuId, ...]:
    ledger = Ledger()
    for holding in ledger.holdings():
        if holding.task == task and ledger.alive(holding):
            if holding.share is not None:
                raise Conflict(
                    f"{task} has a share of {', '.join(holding.gpus)}, but a CDI container would get whole GPUs",
                    remedy="run the program inside the task instead",
                )
            return holding.gpus
    raise NotFound(f"no task {task} runs on this host", remedy="find its host with: mesos-gpu ps")


def _chosen(cards: Mapping[GpuId, specs.Card], wanted: Iterable[GpuId]) -> dict[GpuId, specs.Card]:
    chosen = {}
    for gpu in wanted:
        if gpu not in cards:
            raise NotFound(
                f"{gpu} is not on this host", remedy=f"it has: {', '.join(sorted(cards)) or 'none'}"
            )
        chosen[gpu] = cards[gpu]
    return chosen
