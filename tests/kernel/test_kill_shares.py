"""kill -9 of an executor at the steps of the launch, the resize and the release of a share, beside a neighbour on the
same card: the neighbour's claim, files and turns stay, nothing of the dead does, and no MiB is lost."""

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from isolator.devices.facts import write_inventory
from isolator.gpus.ledger import Ledger
from isolator.gpus.share_claims import CardTrace
from isolator.host import processes
from isolator.node.reaper import reap
from isolator.shares.shim.region import MIB, region_of, regions
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.tasks.resize import Resize
from mesos_gpu.wire.mesos.resize import encode_request
from tests.conftest import wait_until
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import GPUS, Host, host
from tests.kernel.conftest import needs
from tests.kernel.test_kill_at_every_step import EVERY, bootstrap, killed_before, traces_of
from tests.kernel.test_shares import QUARTER, SHARED

pytestmark = pytest.mark.kernel
#: All that the neighbour leaves: only what is lost of the dead can keep it from fitting.
REST = replace(QUARTER, memory_mib=3000, memory_max_mib=3000, compute_milli=750)


class Card:
    """A card with a neighbour on it, and whoever else comes."""

    def __init__(
        self,
        directory: Path,
        version: str,
        stack: ExitStack,
        *,
        share: Share = QUARTER,
        rest: Share = REST,
        inventory: Inventory = SHARED,
    ) -> None:
        """`share`: of the neighbour; `rest`: all that it leaves."""
        self.directory, self._version = directory, version
        self.share, self.rest, self._inventory = share, rest, inventory
        self.gpu = inventory.gpus[0].id
        agent = stack.enter_context(scripted_agent())
        task = f"neighbour-{time.monotonic_ns()}.0"
        given = {"MESOS_GPU_ISOLATION": version, "KILL_AT": "0"}
        self.neighbour = stack.enter_context(host(directory, agent, task=task, **given))
        write_inventory(directory / "node", inventory)
        self.neighbour.launch("echo ready; exec sleep 900", user="nobody", gpus=(self.gpu,), share=share)
        wait_until("the neighbour runs", lambda: "ready" in self.neighbour.stdout(), 60)
        self.ledger = Ledger(directory / "node" / "ledger.sqlite")

    @property
    def comers_share(self) -> Share:
        """What whoever is killed asks for."""
        return self.share

    def window_milli(self) -> int:
        """How much of the card's time the neighbour has."""
        (limits,) = region_of(self.directory / "node", TaskId(self.neighbour.task)).limits(GPUS[:1])
        assert limits.memory_bytes == self.share.memory_max_mib * MIB
        assert limits.window is not None
        return limits.window.length_us * 1000 // limits.window.period_us

    def is_as_before(self, step: str) -> None:
        """The neighbour has all that it had, and nobody else has anything."""
        assert [held.task for held in self.ledger.holdings()] == [self.neighbour.task], step
        assert self.neighbour.states()[-1] == "TASK_RUNNING"
        self.is_enforced_as_before(step)

    def is_enforced_as_before(self, step: str) -> None:
        """What keeps the neighbour to its share does, and there is nothing more of that kind."""
        files = [path.name for path in regions(self.directory / "node").iterdir()]
        assert files == [region_of(self.directory / "node", TaskId(self.neighbour.task)).path.name], step
        assert self.window_milli() == 1000, step
        (row,) = self.ledger.cards()
        assert replace(row, state="") == CardTrace(GPUS[0], "windows", ""), step

    def follow(self) -> None:
        """The next share on that card, which takes all the rest of it."""
        with scripted_agent() as agent:
            task = f"next-{time.monotonic_ns()}.0"
            with host(
                self.directory, agent, task=task, MESOS_GPU_ISOLATION=self._version, KILL_AT="0"
            ) as one:
                write_inventory(self.directory / "node", self._inventory)
                one.launch("true", user="nobody", gpus=(self.gpu,), share=self.rest)
                message, _ = one.update("TASK_FINISHED")
                assert one.process.wait(60) == 0, message

    def killed(self, number: int, wish: Resize | None) -> tuple[Host, str, bool]:
        """An executor that is killed before its Nth change; also its container, and whether it came through."""
        with scripted_agent() as agent:
            now = time.monotonic_ns()
            task, container = f"job-{number}-{now}.0", f"step-{number}-{now}"
            given = {"MESOS_GPU_ISOLATION": self._version, "KILL_AT": str(number)}
            with host(self.directory, agent, task=task, container=container, **given) as one:
                write_inventory(self.directory / "node", self._inventory)
                command = "sleep 600" if wish else "exit 3"
                one.launch(command, user="nobody", gpus=(self.gpu,), share=self.comers_share)
                if wish is not None:
                    one.update("TASK_RUNNING")
                    data = base64.b64encode(encode_request(wish)).decode()
                    one.agent.send({"type": "MESSAGE", "message": {"data": data}})
                    count = len(one.states())
                    wait_until(
                        "it is killed, or answers",
                        lambda count=count: one.process.poll() is not None or len(one.states()) > count,  # type: ignore[misc]
                        60,
                    )
                if wish and one.process.poll() is None:
                    one.kill()
                through = one.process.wait(60) == 0
                return one, container, through


@pytest.fixture(
    params=["cgroup1", *(pytest.param(each, marks=pytest.mark.long) for each in ("cgroup2", "off"))]
)
def card(
    open_directory: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Card]:
    version = str(request.param)
    if version != "off":
        needs(version)
    directory = open_directory / f"kill-{time.monotonic_ns()}"
    directory.mkdir()
    monkeypatch.setattr(
        "tests.hosts.executor_command", lambda: bootstrap("prepare", "fetch", "start", "undo", "seal")
    )
    with ExitStack() as stack:
        yield Card(directory, version, stack)


def each_step(
    card: Card, steps: Sequence[int], wish: Resize | None = None, *, more_than: int = 0
) -> list[str]:
    """Kill an executor before each of the steps; by turns the monitor and the next share clean up.

    Args:
        card: Card that the executor launches a share on.
        steps: Numbers of steps, or `EVERY`, until one comes through.
        wish: Resize in which it is killed, and not in its launch.
        more_than: Lower bound of the number of steps, of `EVERY`.

    Returns:
        Calls that they were killed before.
    """
    killed: list[str] = []
    for number in steps:
        one, container, through = card.killed(number, wish)
        if through:
            break
        killed.append(one.stderr().splitlines()[-1])
        if len(killed) % 2:
            reap(card.ledger)
        else:
            card.follow()
            assert [held.task for held in card.ledger.holdings() if not held.is_released] == [
                card.neighbour.task
            ]
            reap(card.ledger)  # seals a sandbox that is not sealed yet
        card.is_as_before(killed[-1])
        assert traces_of(container) == [], killed[-1]
        gone = partial(processes.of_task, one.task)
        wait_until("nothing of it runs", lambda gone=gone: gone() == [], 30)  # type: ignore[misc]
    card.follow()
    card.is_as_before("the end")
    if steps is EVERY:
        assert number > more_than, killed
    else:
        assert len(killed) == len(steps), "the executor came through"
    return killed


@killed_before(60)
def test_kill_in_launch_or_release_leaves_the_neighbour_its_share(card: Card, steps: Sequence[int]) -> None:
    each_step(card, steps, more_than=80)


@killed_before(9)
@pytest.mark.parametrize(
    "wish", [Resize(1, 3000, 3000, 750), Resize(1, 500, 500, 100)], ids=["larger", "smaller"]
)
def test_kill_in_a_resize_leaves_the_neighbour_its_share(
    card: Card, steps: Sequence[int], wish: Resize, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.hosts.executor_command", lambda: bootstrap("resize"))
    each_step(card, steps, wish, more_than=15)
