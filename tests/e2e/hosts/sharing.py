"""Jobs with shares of one card, beside each other: in an image that Mesos runs, in one of the Docker Engine, on the
host. The driver's libraries and the cards are doubles (tests.doubles.cuda); all else is real."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import requests

from isolator.gpus.ledger import Ledger
from isolator.shares.shim.region import MIB, region_of, regions
from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import Stack
from mesos_gpu.model.ids import GpuId, TaskId
from tests.conftest import wait_until
from tests.cuda import card_of
from tests.doubles.images import layer

IMAGE, OWN_CUDA = "sharing:1", "own-cuda:1"
NEIGHBOUR = "games"  # a user of Debian's: each tenant has its own
#: By the way that a task runs: what its job says for that, and what it holds of its card, in MiB.
WAYS: dict[str, tuple[dict[str, object], int]] = {
    "nested": ({"image": IMAGE}, 301),
    "docker": ({"image": IMAGE, "container_engine": "docker"}, 302),
    "host": ({}, 303),
    "own": ({"image": IMAGE, "container_engine": "own"}, 304),
}
PART = {
    "gpus": 1,
    "gpu_compute_pct": 20,
    "gpu_memory_mib": 1000,
    "cpus": 0.1,
    "mem_mib": 64,
    "kill_grace_s": 1,
}
NVIDIA, SHARE = "/usr/local/nvidia", "/usr/local/nvidia/region"
FAMILIES = {
    f"mesos_gpu_share_{name}"
    for name in (
        "info", "memory_mib", "compute_pct", "used_memory_mib", "most_memory_mib", "used_compute_pct",
        "refused_allocations_total", "missed_windows_total", "over",
    )
}  # fmt: skip


def client_layer(client: Path) -> bytes:
    """A layer with the client, and with what a linker needs for it but CUDA."""
    told = subprocess.run(["ldd", client], capture_output=True, text=True, check=True).stdout
    needed = [path for path in re.findall(r"(/\S+) \(0x", told) if "libcuda" not in path]
    directories = sorted({str(parent) for path in needed for parent in Path(path).parents} - {"/"})
    return layer(
        {
            **{directory.lstrip("/"): None for directory in directories},
            **{path.lstrip("/"): Path(path).read_bytes() for path in needed},
            "bin/client": client.read_bytes(),
        }
    )


class Sharing:
    """A node whose cards are shared."""

    def __init__(self, stack: Stack, client: Client, data: Path, program: Path, ways: Sequence[str]) -> None:
        """Make its cards.

        Args:
            stack: Cluster of the node.
            client: Client of the cluster.
            data: Directory of the host that tasks may have.
            program: Client of CUDA.
            ways: Keys of `WAYS`: the ways in which tasks run.
        """
        self.stack, self.client, self.data = stack, client, data
        self.ways = {way: WAYS[way] for way in ways}
        self.node = stack.directory / "nodes" / "1"
        self.pipe = stack.directory / "pipe"  # as a directory of an MPS daemon: who reaches it may use it
        self.pipe.mkdir(exist_ok=True)
        shutil.copy(program, data / "client")
        (data / "client").chmod(0o755)
        for gpu in client.gpus():
            card_of(data / "cards" / gpu["uuid"], GpuId(gpu["uuid"]))

    def submit(self, way: str, command: str, **more: object) -> Job:
        """Submit a job in which `$CLIENT` is the program."""
        fields, _ = WAYS[way]
        image = "image" in fields
        program = "/bin/client" if image else f"{self.data}/client"
        cards = "/cards" if image else f"{self.data}/cards"
        setup = f"export STUB_CARDS={cards}/$CUDA_VISIBLE_DEVICES CLIENT={program}; cd $MESOS_SANDBOX; "
        volumes = {"volumes": [f"{self.data}/cards:/cards"]} if image else {}
        request = {"name": f"share-{way}", **PART, **fields, **volumes, "command": setup + command}
        return self.client.submit({**request, **more})

    def said(self, job: Job) -> list[str]:
        """Give the lines of its output."""
        return self.client.logs(job["id"], stream="stdout", offset=0, length=60000)["data"].splitlines()

    def until(self, job: Job, last: str) -> list[str]:
        """Wait until the last line of its output is that."""

        seen: list[str] = []

        def there() -> bool:
            now = self.client.job(job["id"])
            assert not ended(now), now["message"]
            seen[:] = self.said(job) if now["state"] == "running" else []
            return seen[-1:] == [last]

        try:
            wait_until(f"{job['name']} says {last}", there, 60)
        except AssertionError as error:
            why = self.client.why(job["id"])["summary"]
            raise AssertionError(f"{error}: {seen}, {why}") from error
        return seen

    @contextmanager
    def tenants(self, **more: object) -> Iterator[dict[str, Job]]:
        """Run one of each way, which holds what it does, until the end; then nothing of them is there."""
        jobs = {
            way: self.submit(way, f"exec $CLIENT hold {mib}", name=f"tenant-{way}", **more)
            for way, (_, mib) in self.ways.items()
        }
        try:
            for job in jobs.values():
                self.until(job, "0")
            yield {way: self.client.job(job["id"]) for way, job in jobs.items()}
        finally:
            self.end(*jobs.values())

    def end(self, *jobs: Job) -> None:
        """Kill them; what was made for their shares is gone with them."""
        for job in jobs:
            self.client.kill(job["id"])
        wait_until("all end", lambda: all(ended(self.client.job(job["id"])) for job in jobs), 60)
        started = [now for job in jobs if (now := self.client.job(job["id"]))["task_ids"]]
        for job in started:
            region = region_of(self.node, task_of(job)).path
            wait_until("its region is gone", lambda region=region: not region.exists(), 60)  # type: ignore[misc]
        ledger = Ledger(self.node / "ledger.sqlite")
        if not any(regions(self.node).iterdir()):
            assert ledger.cards() == ()

    def metrics(self) -> dict[TaskId, dict[str, float]]:
        """Read, of each task with a share, the families that name it."""
        wish = {"Accept": "text/plain"}
        text = requests.get(f"{self.stack.url}/metrics", headers=wish, timeout=60).text
        tasks: dict[TaskId, dict[str, float]] = {}
        for name, labels, value in re.findall(r"^(mesos_gpu_share_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
            (task,) = re.findall(r'task="([^"]*)"', labels)
            tasks.setdefault(TaskId(task), {})[name] = float(value)
        return tasks


def task_of(job: Job) -> TaskId:
    """Name the task that it has."""
    return TaskId(job["task_ids"][-1])


def pid_of(mib: int) -> int:
    """The client that holds so much, as this host sees it."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if entry.read_bytes().split(b"\0")[1:3] == [b"hold", b"%d" % mib]:
                return int(entry.parent.name)
    raise AssertionError(f"nobody holds {mib} MiB")


def nested_gets_its_share(sharing: Sharing) -> None:
    """What it loads, what it sees, what it is kept to, what is left."""
    job = sharing.submit(
        "nested",
        "$CLIENT hold 301 > held & until grep -q 0 held; do sleep 0.1; done; "
        f"grep -o '{NVIDIA}/lib64/[^ ]*cuda[^ ]*' /proc/$!/maps | sort -u; "
        f"grep ' {NVIDIA}' /proc/self/mountinfo | cut -d' ' -f5,6 | sort; "
        f"( echo x > {SHARE}/limits ) 2>/dev/null || echo refused; "
        "$CLIENT alloc 600; $CLIENT alloc 800; echo ready; wait",
    )
    *said, _ = sharing.until(job, "ready")
    assert said[:2] == [f"{NVIDIA}/lib64/{name}" for name in ("libcuda.so.1", "libmgpu-real-cuda.so")]
    mounts = {place: options.split(",")[0] for place, options in (line.split() for line in said[2:5])}
    assert mounts == {NVIDIA: "ro", SHARE: "ro", f"{SHARE}/usage": "rw"}
    assert said[5:] == ["refused", "0", "2"], "of its 1000 MiB 301 are held"
    now = sharing.client.job(job["id"])
    gpu, region = GpuId(now["gpu_ids"][0]), region_of(sharing.node, task_of(now))
    (limits,) = region.limits((gpu,))
    assert (limits.memory_bytes, limits.window is not None) == (1000 * MIB, True)
    other = sharing.submit("nested", "exec $CLIENT hold 5")
    sharing.until(other, "0")
    theirs = region_of(sharing.node, task_of(sharing.client.job(other["id"])))
    usages = [each.usage((gpu,)).cards[gpu].memory_bytes // MIB for each in (region, theirs)]
    assert usages == [301, 5]
    windows = [each.limits((gpu,))[0].window for each in (region, theirs)]
    assert None not in windows  # equal ones, too: of tasks that compute nothing each may have all of the time
    sharing.end(job, other)


def own_libcuda_is_refused(sharing: Sharing) -> None:
    """On a card whose host limits memory by cgroup, as isolation strict needs it."""
    gpu = GpuId(sharing.client.gpus()[0]["uuid"])
    changed = {"sharing": {"abilities": {"dmem": "", "shim": ""}}}
    assert change_gpu(sharing.stack.inventory(1), gpu, **changed)
    try:
        for way in [each for each in sharing.ways if each != "host"]:
            job = sharing.submit(way, "echo never", isolation="strict", image=OWN_CUDA)
            wait_until("it is refused", lambda job=job: ended(sharing.client.job(job["id"])), 90)  # type: ignore[misc]
            over = sharing.client.job(job["id"])
            assert "the image has a libcuda of its own, /opt/own/lib/libcuda.so.1" in str(over["message"])
            assert (over["state"], over["launches"], sharing.said(over)) == ("failed", 1, [])
    finally:
        assert change_gpu(sharing.stack.inventory(1), gpu, sharing={})


def metrics_are_each_ones(sharing: Sharing) -> None:
    """By its own account, by the driver, and gone with the task."""
    with sharing.tenants() as jobs:
        (uuid,) = {gpu for job in jobs.values() for gpu in job["gpu_ids"]}
        tasks = {way: task_of(job) for way, job in jobs.items()}

        def used(expected: dict[str, int]) -> bool:
            now = sharing.metrics()
            have = {
                way: now.get(task, {}).get("mesos_gpu_share_used_memory_mib") for way, task in tasks.items()
            }
            return have == expected

        wait_until("what each says", lambda: used({way: mib for way, (_, mib) in sharing.ways.items()}), 60)

        def complete() -> bool:
            now = sharing.metrics()
            return {way: set(now[task]) for way, task in tasks.items()} == dict.fromkeys(
                sharing.ways, FAMILIES
            )

        wait_until("all families are there for each", complete, 60)
        driver = {way: 10 + mib for way, (_, mib) in sharing.ways.items()}
        pids = {str(pid_of(mib)): driver[way] for way, (_, mib) in sharing.ways.items()}
        said = {"pids": list(map(int, pids)), "process_mib": pids}
        assert change_gpu(sharing.stack.inventory(1), GpuId(uuid), **said)
        wait_until("what the driver says of each one's process", lambda: used(driver), 60)
        (card,) = [gpu for gpu in sharing.client.gpus() if gpu["uuid"] == uuid]
        assert card["health"] == "ok", "no process is a stranger's"
        assert change_gpu(sharing.stack.inventory(1), GpuId(uuid), pids=None, process_mib=None)
    wait_until("they are gone", lambda: not sharing.metrics().keys() & set(tasks.values()), 60)


#: Each a way to more than one's share.
WIDEN = {
    "write limits": f"printf x > {SHARE}/limits",
    "make limits writable": f"mount -o remount,rw,bind {SHARE}",
    "replace limits": f"rm -f {SHARE}/limits && cp /bin/sh {SHARE}/limits",
    "mount something over limits": f"cp {SHARE}/limits mine && mount --bind mine {SHARE}/limits",
    "take usage away": f"umount {SHARE}/usage",
    "add a file": f"touch {SHARE}/more",
    "write its cgroup's limits": (
        "for f in $(find /sys/fs/cgroup -type f); do echo max > $f && exit 0; done; exit 1"
    ),
}


def at_a_neighbours(sharing: Sharing, job: Job, victim: int) -> dict[str, str]:
    """Name ways to what is a neighbour's. `victim`: its process."""
    region, ledger = region_of(sharing.node, task_of(job)).path, sharing.node / "ledger.sqlite"
    roots = ("", "/proc/1/root", f"/proc/{victim}/root")
    return {
        "list the others": " || ".join(f"ls {root}{region.parent}" for root in roots),
        "read another's usage": " || ".join(f"cat {root}{region}/usage" for root in roots),
        "read it where its task sees it": f"cat /proc/{victim}/root{SHARE}/usage",
        "read its memory": f"head -c 1 /proc/{victim}/mem || ls /proc/{victim}/fd",
        "signal it": f"kill -0 {victim}",
        "read the ledger": " || ".join(f"cat {root}{ledger}" for root in roots),
        "reach a server's pipe": " || ".join(f"ls {root}{sharing.pipe}" for root in roots),
        "signal a server of root's": f"kill -0 {os.getpid()}",
    }


def names_of(jobs: Iterable[Job]) -> dict[str, str]:
    """Name ways to learn what neighbours are called."""
    names = [name for job in jobs for name in (*job["task_ids"], job["name"])]
    hidden = "|".join(f"[{name[0]}]{name[1:]}" for name in names)  # does not match itself
    looked = " ".join(f"/proc/[0-9]*/{file}" for file in ("cmdline", "environ", "mountinfo", "cgroup"))
    return {
        "learn a name": f"grep -aEs '{hidden}' /proc/mounts {looked}",
        "learn one from files": f"find / -path /proc -prune -o -print 2>/dev/null | grep -E '{hidden}'",
        "learn one from its environment": f"env | grep -E '{hidden}'",
    }


def attempts_are_refused(sharing: Sharing) -> None:
    """By a task in a container of either engine, with a neighbour of each way."""
    with sharing.tenants(user=NEIGHBOUR) as jobs:
        tries = {**WIDEN, **names_of(jobs.values())}
        for kind, job in jobs.items():
            ways = at_a_neighbours(sharing, job, pid_of(WAYS[kind][1]))
            tries |= {f"{name}, of {kind}": command for name, command in ways.items()}
        script = "\n".join(
            f"( {command} ) > try 2>&1 && echo {shlex.quote(f'ESCAPED {name}')} && head -c 300 try"
            for name, command in tries.items()
        )
        for way in [each for each in sharing.ways if each != "host"]:
            attacker = sharing.submit(way, f"{script}\necho tried\nsleep 600")
            assert sharing.until(attacker, "tried") == ["tried"]
            assert {sharing.client.job(job["id"])["state"] for job in jobs.values()} == {"running"}
            gpu = GpuId(jobs["host"]["gpu_ids"][0])
            for kind, job in jobs.items():
                region = region_of(sharing.node, task_of(job))
                assert region.limits((gpu,))[0].memory_bytes == 1000 * MIB
                assert region.usage((gpu,)).cards[gpu].memory_bytes == WAYS[kind][1] * MIB
            sharing.end(attacker)
