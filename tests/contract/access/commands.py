"""The other half of the table of rights: each command, and whom the scheduler does what it asks for."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from tests.contract.access.scene import APP, BINDINGS, CALLERS, HOOKED, Scene

Words = Sequence[str]
_BOOK: Final = (
    "--queue",
    "research",
    "--gpus",
    "1",
    "--from",
    "tomorrow 12:00",
    "--for",
    "1m",
    "--zone",
    "UTC",
)
_NO_MASTER: Final = ("--master", "127.0.0.1:1")  # the scheduler is asked first


@dataclass(frozen=True, slots=True)
class Command:
    """A command that asks the scheduler.

    Attributes:
        name: Its words.
        whom: As of `Row`.
        words: What follows its name; makes what it is about.
    """

    name: str
    whom: str
    words: Callable[[Scene], Words] = lambda _: ()

    def __post_init__(self) -> None:
        assert len(self.whom) == len(CALLERS), self
        assert set(self.whom) <= set("x-"), self


def _document(scene: Scene) -> str:
    return scene.file(
        yaml.safe_dump({"bindings": [*BINDINGS, {"names": [scene.new("n")], "roles": ["viewer"]}]})
    )


def _app_file(scene: Scene, path: str = "") -> str:
    return scene.file(json.dumps({"id": path or f"/research/{scene.new('new')}", **APP, "cmd": "sleep 7"}))


def _job_file(scene: Scene) -> str:
    return scene.file(json.dumps({"command": "true", "queue": "research", "cpus": 1000}))


def _ended(scene: Scene) -> str:
    job = scene.job()
    scene.made("ann", "DELETE", f"/v1/jobs/{job}")
    return job


def _two_versions(scene: Scene) -> str:
    path = scene.app()
    scene.made("ann", "PUT", f"/v2/apps{path}", json={"cmd": "sleep 8"})
    scene.settle()
    return path


def _version(scene: Scene) -> str:
    """A version that says something else than the latest."""
    before = scene.daemon.access.version
    scene.bind(*BINDINGS, {"names": [scene.new("n")], "roles": ["viewer"]})
    return str(before)


def _queues_file(scene: Scene) -> str:
    """A tree that says something else than the latest."""
    return scene.file(yaml.safe_dump({"queues": {"research": {}, "other": {}, scene.new("q"): {}}}))


def _queue(scene: Scene) -> str:
    """A queue of the latest tree."""
    scene.queues()
    return "research"


def _queues_version(scene: Scene) -> str:
    """A version of the tree that says something else than the latest."""
    before = scene.queues()
    known = scene.made("boss", "GET", "/v1/queues").json()
    scene.made("boss", "PUT", "/v1/queues", json={**known, "queues": {**known["queues"], scene.new("q"): {}}})
    return str(before)


def _shift(scene: Scene) -> Words:
    """From an app to one of which a task serves, in one step."""
    name, old, (new, _) = scene.new("svc"), scene.app(), scene.task()
    scene.made("ann", "PUT", f"/v1/services/{name}", json={"apps": {old: 1}})
    return name, "--from", old, "--to", new, "--step", "100", "--interval", "1s"


def _budget(scene: Scene) -> str:
    tag = {"If-Match": f'"{scene.queues()}"'}
    scene.made("boss", "PATCH", "/v1/queues/research", json={"budget": {"gpu_hours": 10}}, headers=tag)
    return "research"


COMMANDS: Final = (
    Command("run", "---x-x", lambda _: ("--detach", "--queue", "research", "--cpus", "1000", "true")),
    Command("submit", "---x-x", lambda s: (_job_file(s),)),
    Command("ps", "-xxxxx"),
    Command("show", "-x-xxx", lambda s: (s.job(),)),
    Command("why", "-x-xxx", lambda s: (s.job(),)),
    Command("queue", "-xxxxx"),
    *(Command(f"mesos quota {verb}", "-xxxxx", lambda _: _NO_MASTER) for verb in ("plan", "apply")),
    *(
        Command(f"mesos reserve {verb}", "-xxxxx", lambda _: ("default", *_NO_MASTER))
        for verb in ("plan", "apply", "release")
    ),
    Command("queue list", "-xxxxx"),
    Command("queue show", "-xxxxx"),
    Command("queue shares", "-xxxxx"),
    Command("queue why", "-x-xxx", lambda s: (_queue(s),)),
    Command("queue apply", "----xx", lambda s: (_queues_file(s), "--yes")),
    Command("queue diff", "-xxxxx", lambda s: (_queues_file(s),)),
    Command("queue versions", "-x--xx"),
    Command("queue rollback", "----xx", lambda s: (_queues_version(s), "--yes")),
    Command("queue hold", "----xx", lambda s: (_queue(s),)),
    Command("queue resume", "----xx", lambda s: (_queue(s),)),
    Command("queue drain", "----xx", lambda s: (_queue(s),)),
    Command("upgrade plan", "-xxxxx", lambda _: ()),
    Command("plan defrag", "-xxxxx", lambda _: ("--gpus", "1")),
    Command("logs", "---x-x", lambda s: (s.job(),)),
    Command("exec", "---x-x", lambda s: (s.job(), "--", "true")),
    Command(
        "attach", "-x-xxx", lambda s: (_ended(s),)
    ),  # it has no output, of which the right is that of logs
    Command("notebook", "---x-x", lambda _: ("--detach", "--queue", "research", "--cpus", "1000")),
    Command("port-forward", "---x-x", lambda s: (s.job(), "0:80")),
    Command("cp", "---x-x", lambda s: (f"{s.job()}:x", "-")),
    Command("ls", "---x-x", lambda s: (s.job(),)),
    Command("cat", "---x-x", lambda s: (f"{s.job()}:x",)),
    Command("kill", "---xxx", lambda s: (s.job(),)),
    Command("keep", "---xxx", lambda s: (s.job(), "--for", "60s")),
    Command("wait", "-x-xxx", lambda s: (_ended(s),)),
    Command("resize", "---xxx", lambda s: (s.job(), "--gpu-compute", "50")),
    Command("gpus", "-xxxxx"),
    Command("top", "-xxxxx", lambda _: ("--once",)),
    Command("nodes", "-xxxxx"),
    Command("gpu list", "-xxxxx"),
    Command("gpu health", "-xxxxx", lambda _: ("g0",)),
    Command("gpu drain", "----xx", lambda _: ("g0", "--reason", "fan")),
    Command("gpu undrain", "----xx", lambda s: (s.drained("gpus/g0")[5:],)),
    Command("gpu reset", "----xx", lambda s: (f"g{int(s.new('')) % 2}", "--reason", "XID 79")),
    Command("node list", "-xxxxx"),
    Command("node drain", "----xx", lambda _: ("a1", "--reason", "fan")),
    Command("node undrain", "----xx", lambda s: (s.drained("nodes/a1")[6:],)),
    Command("app list", "-xxxxx"),
    Command("app show", "-x-xxx", lambda s: (s.app(),)),
    Command("app tasks", "-x-xxx", lambda s: (s.app(),)),
    Command("app versions", "-x-xxx", lambda s: (s.app(),)),
    Command("app create", "---x-x", lambda s: (_app_file(s),)),
    Command("app update", "---x-x", lambda s: (s.app(), "mem=33")),
    Command("app scale", "---x-x", lambda s: (s.app(), "1")),
    Command("app restart", "---x-x", lambda s: (s.app(),)),
    Command("app rollback", "---x-x", lambda s: (_two_versions(s),)),
    Command("app delete", "---x-x", lambda s: (s.app(),)),
    Command("deployment list", "-xxxxx"),
    Command("deployment show", "-x-xxx", lambda s: (s.deployment(),)),
    Command("deployment stop", "---x-x", lambda s: (s.deployment(),)),
    Command("diff", "---x-x", lambda s: (_app_file(s, s.app()),)),
    Command("service list", "-xxxxx"),
    Command("service show", "-x-xxx", lambda s: (s.service(),)),
    Command("service split", "---x-x", lambda s: (s.new("svc"), f"{s.app()}=1")),
    Command("service unsplit", "---x-x", lambda s: (s.service(),)),
    Command("service shift", "---x-x", _shift),
    Command("service export", "-xxxxx", lambda _: ("--format", "json")),
    Command("storage list", "-xxxxx"),
    Command("storage remove", "---xxx", lambda s: (s.volume(), "--user", "ann")),
    Command("uploads list", "--xx-x"),
    Command("uploads rm", "--xx-x", lambda _: ("--unused",)),
    Command("tasks unknown list", "----xx"),
    Command("tasks unknown adopt", "----xx", lambda _: ("t1",)),
    Command("tasks unknown kill", "----xx", lambda _: ("t1",)),
    Command("access show", "----xx"),
    Command("access apply", "-----x", lambda s: (_document(s), "--yes")),
    Command("access diff", "----xx", lambda s: (_document(s),)),
    Command("access can", "----xx", lambda _: ("somebody", "job:run")),
    Command("access versions", "----xx"),
    Command("access rollback", "-----x", lambda s: (_version(s), "--yes")),
    Command("access rights", "-xxxxx"),
    Command("token create", "--xxxx"),
    Command("token list", "--xxxx"),
    Command("token revoke", "---x-x", lambda s: (s.token(),)),
    Command("audit", "----xx"),
    Command("events", "-xxxxx"),
    Command("history", "-xxxxx"),
    Command("webhook list", "----xx"),
    Command("webhook versions", "----xx"),
    Command("webhook show", "----xx", lambda s: (s.webhook(),)),
    Command("webhook add", "----xx", lambda s: (s.new("hook"), HOOKED)),
    Command("webhook remove", "----xx", lambda s: (s.webhook(),)),
    Command("webhook test", "----xx", lambda s: (s.webhook(),)),
    Command("webhook dead", "----xx", lambda s: (s.webhook(),)),
    Command("webhook retry", "----xx", lambda s: (s.webhook(),)),
    Command("reserve", "----xx", lambda s: (*_BOOK, "--name", s.new("book"))),
    Command("reserve list", "-xxxxx"),
    Command("reserve show", "-x-xxx", lambda s: (s.booking(),)),
    Command("reserve move", "----xx", lambda s: (s.booking(), "--for", "2m")),
    Command("reserve cancel", "----xx", lambda s: (s.booking(),)),
    Command("budget list", "-xxxxx"),
    Command("budget show", "-x-xxx", lambda s: (_budget(s),)),
    Command("budget grant", "----xx", lambda s: (_budget(s), "5")),
    Command("budget set-aside", "----xx", lambda s: (_budget(s), "5")),
    Command("report usage", "-xxxxx"),
    Command("report wait", "-xxxxx"),
    Command("report idle", "-xxxxx"),
    Command("report fairness", "-xxxxx"),
    Command("report budget", "-xxxxx"),
    Command("whoami", "xxxxxx"),
    Command("login", "xxxxxx"),
    Command("status", "-xxxxx"),
    Command("leader", "-xxxxx"),
)
#: Commands that ask no scheduler, or (logout) end one's own login: they may what the Unix user may who calls them.
LOCAL: Final = (
    "node cdi", "node shim build", "node shim check",
    "volume build", "volume list", "volume show", "volume verify", "volume gc", "volume plan",
    "backup", "restore", "template list", "template show", "template render",
    "up", "down", "scheduler", "doctor", "demo", "install executor", "install agent", "install scheduler",
    "install secrets", "teardown", "cluster plan", "cluster apply", "mesos master", "mesos agent",
    "mesos check", "mesos quota show", "install master",
    "simulate inflation", "simulate jobs", "simulate tenants", "simulate replay",
    "context list", "context use", "context add", "context remove", "context show", "logout", "completion", "help",
)  # fmt: skip
