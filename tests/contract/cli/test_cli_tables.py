"""Tables on terminals of 60, 80, 120 and 200 columns, beside what tests/data/tables.txt says they are.

After a change that is meant: `python -m tests.contract.cli.test_cli_tables > tests/data/tables.txt`, and look at it.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import yaml
from click.testing import CliRunner

import mesos_gpu
from isolator.node.mesos_access import Daemon
from mesos_gpu.api.spec.events import Event
from mesos_gpu.api.spec.gpus.use import Meters
from mesos_gpu.cli import main, output
from mesos_gpu.cli.apps import crashing
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.jobs import listing
from mesos_gpu.cli.lists import watch
from mesos_gpu.cli.queues import listing as queues_listing
from mesos_gpu.cli.reach import contexts, logins
from mesos_gpu.cli.reach.contexts import Context, Contexts
from mesos_gpu.cli.top import queue as top_queue
from mesos_gpu.cli.top import tasks as top_tasks
from mesos_gpu.model.tenancy import Guarantee, Idle, IdlePolicy, QueueDocument, QueueSpec
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.tenancy.document import encode
from tests.contract.cli.cli_rig import GPU, NODE, UUIDS, call
from tests.contract.cli.listed import AT, MAX_LENGTH, fill_queues, fill_records, queue_share
from tests.doubles.fake_rest import FakeRest

GOLDEN = Path(mesos_gpu.__file__).parents[1] / "tests/data/tables.txt"
WIDTHS = (60, 80, 120, 200)
# What each table must show at every width: what it is asked for.
TABLES: dict[str, tuple[str, ...]] = {
    "nodes": ("HOST", "STATE", "GPUS", "USED", "SICK"),
    "ps": ("ID", "STATE", "GPUS", "NODE"),
    "ps -a": ("ID", "STATE", "EXIT", "GPUS"),
    "ps --columns state,id,queue --sort -gpus,age": ("STATE", "ID", "QUEUE"),
    "gpu list": ("HOST", "INDEX", "HEALTH", "JOB"),
    "gpus": ("HOST", "INDEX", "HEALTH", "JOB"),
    "gpus --wide": ("HOST", "INDEX", "HEALTH", "JOB"),
    "top --once": ("HOST", "JOB", "USED_%"),
    "top nodes --once": ("HOST", "GPUS", "HELD", "BUSY_%"),
    "top tasks --once --sort idle": ("TASK", "GPUS", "BUSY_%", "IDLE"),
    "top queue --once": ("JOB", "GPUS", "WAITS", "START"),
    "queue": ("PLACE", "ID", "GPUS", "START"),
    "app list": ("ID", "RUNNING"),
    "queue shares": ("QUEUE", "FAIR_SHARE", "HELD", "PENDING", "GUARANTEE"),
    "gpu health": ("HOST", "INDEX", "UUID", "HEALTH", "REASON"),
    "events": ("TIME", "KIND", "ON", "WHAT"),
    "queue list": ("QUEUE", "GUARANTEE", "HELD", "PENDING", "FAIR_SHARE"),
    "report usage": ("QUEUE", "GPU_H", "COST", "CHARGED", "BORROWED", "LOST", "UNMET"),
    "report fairness": ("QUEUE", "GPU_H", "OF_ALL%", "UNMET", "MET%", "WAIT_90%"),
    "report wait --sort -unmet": ("QUEUE", "STARTED", "HALF", "90%", "99%", "UNMET"),
    "report idle": ("QUEUE", "BUSY", "IDLE", "UNKNOWN", "IDLE%", "WANTED", "BACK"),
    "report budget": ("FROM", "QUEUE", "USER", "HOURS", "USED", "USED%"),
    "budget list": ("QUEUE", "USER", "USED", "USED%", "EMPTY"),
    "token list": ("ID", "NAME", "EXPIRES"),
    "context list": ("CURRENT", "NAME", "URL"),
    "audit": ("TIME", "WHO", "WHAT", "RESULT"),
    "webhook list": ("NAME", "URL", "WAITING", "DEAD"),
    "webhook dead ops": ("ID", "KIND", "GIVEN_UP", "ERROR"),
    "webhook versions": ("VERSION", "AT", "WHAT"),
    "app tasks shop/web": ("TASK", "STATE", "HOST"),
    "app versions shop/web": ("VERSION", "AGE", "NOW"),
    "service list": ("NAME", "SERVERS", "APPS"),
    "queue versions": ("VERSION", "AT", "COMMENT"),
    "access versions": ("VERSION", "AT", "COMMENT"),
    "access rights": ("RIGHT", "ALLOWS"),
    "uploads list": ("UPLOAD", "SIZE", "STATE", "USED", "JOBS"),
    "storage list": ("NAME", "SIZE", "STATE", "HOST"),
    "queue show": ("#", "Version"),
    "mesos quota plan --master m:5050": ("ROLE", "USED", "LIMIT", "WEIGHT", "WHY"),
    "mesos quota show --master m:5050": ("ROLE", "USED", "LIMIT", "WEIGHT"),
    "mesos reserve plan default --master m:5050": ("NODE", "GPUS", "RESERVED", "RESERVE", "USE"),
}
PIPED = (
    "ps", "ps -a -o wide", "ps -q", "nodes", "gpus", "queue", "app list", "report usage -o wide --by user",
    "report budget -q", "budget list -o wide", "token list -o wide", "token list --columns name,used --sort -used",
    "context list -q", "audit -o wide", "webhook list -o wide", "webhook dead ops -q", "app tasks shop/web -o wide",
    "app versions shop/web -q", "service list -o wide", "access versions -q", "access rights -o wide",
    "queue shares -o wide", "queue list -o wide", "gpu health --columns uuid,reason", "events -o wide",
)  # fmt: skip
NOW = AT + 86_400.0
CONTEXTS = Contexts(
    "lab",
    {
        "lab": Context("https://scheduler.lab.example.com:8443"),
        "production-in-the-cellar": Context("https://mesos-gpu.production.example.com"),
    },
)
HOSTS = [f"gpu-{i}.rack7.example.com" for i in range(1, 4)]
BUSY = {
    **dict.fromkeys(get_type_hints(Meters)), "memory_used_mib": 61000, "power_mw": 371_800, "temperature_c": 71,
    "busy_pct": 83.4, "at": 0.0, "processes": 1, "xid": None,
}  # fmt: skip
IDLE = {**BUSY, "memory_used_mib": 0, "power_mw": 62_000, "temperature_c": 34, "busy_pct": 0.0}
AGENT = "0bb8021f-e9bd-4280-a261-138352eff3dc-S{}"
COMMAND = "exec python3 -m http.server $PORT0 --bind 127.0.0.1 --directory /srv/models"
APP = {
    "id": "/shop/web", "instances": 2, "tasksRunning": 2, "tasksHealthy": 2, "healthChecks": [{}], "cpus": 0.1,
    "mem": 64, "gpus": 1, "deployments": [], "cmd": COMMAND,
}  # fmt: skip


LABELS = tuple(f"purpose={what}" for what in ("demo", "teaching", "exam", "on-call", "night", "benchmark"))
DOCUMENT = QueueDocument(
    3, AT, "ann", "the room of those on call",
    queues={
        "production": QueueSpec(guarantee_gpus={"default": Guarantee(8000)}, weight=3),
        "research": QueueSpec(
            limit_gpus={"default": 16_000}, idle=Idle(policy=IdlePolicy.PRESSURE, exempt_labels=LABELS)
        ),
    },
)  # fmt: skip


def fill(rest: FakeRest) -> None:
    now = NOW - 0.5
    for i, uuid in enumerate(UUIDS):
        id = f"shop_web.instance-{uuid}._app"
        made = rest.add(command=COMMAND, gpus=1, cpus=0.1, mem_mib=64)
        rest.tasks[id] = rest.tasks.pop(made)
        rest.jobs[id] = {
            **rest.jobs.pop(made), "id": id, "state": "running",
            "hostnames": HOSTS[i : i + 1], "submitted_at": now - 3700, "started_at": now - 3690,
            "use": {"busy_pct": (0.0, 83.4)[i], "memory_mib": 0, "processes": 1, "idle_s": (11100.0, None)[i]},
        }  # fmt: skip
    gang = rest.add("gang", tasks=3, gpus=4, argv=["torchrun", "--nnodes", "3", "train.py"], queue="night")
    rest.jobs[gang].update(
        state="running", hostnames=HOSTS, submitted_at=now - 90061, started_at=now - 90000, priority=-20
    )
    failed = rest.add("sh", argv=["sh", "-c", "echo out; exit 3"])
    ended = {"submitted_at": now - 9, "started_at": now - 9, "ended_at": now - 8}
    rest.jobs[failed].update(state="failed", exit_code=3, hostnames=HOSTS[:1], **ended)
    waits = rest.add("train", argv=["./train.sh"], gpus=9)
    rest.jobs[waits].update(submitted_at=now - 59)
    warned = rest.add("notebook", gpus=1, queue="night")
    rest.jobs[warned].update(
        state="running", hostnames=HOSTS[:1], submitted_at=now - 9000, started_at=now - 9000,
        use={"busy_pct": 0.0, "memory_mib": 100, "processes": 1, "idle_s": 2700.0},
        idle={
            "state": "warned", "since": now - 600, "idle_s": 2700.0, "warn_after_s": 2100.0, "return_after_s": 3600.0,
            "policy": "always", "keep_until": None, "kept_by": None,
        },
    )  # fmt: skip
    kept = {"hostname": HOSTS[0], "gpu_ids": ["GPU-1", "GPU-2"], "at": None}
    queued = {
        "position": 0, "id": waits, "name": "train", "app": None, "array_id": None, "owner": None, "queue": "default",
        "priority": 0, "effective_priority": 3,
        "gpus": 9, "cpus": 1.0, "mem_mib": 128, "submitted_at": now - 59, "reservation": kept,
        "estimate": {"at": None, "basis": "no node would have room for it if all that runs there ended"},
    }  # fmt: skip
    rest.fixed["GET /v1/queue"] = (200, {"jobs": [queued], "queues": []})
    cards = [_gpu(0, now), _shared(_gpu(0, now)), _gpu(1, now), _gpu(2, now)]
    rest.fixed["GET /v1/gpus"] = (200, {"gpus": cards})
    rest.fixed["GET /v1/tasks"] = (200, {"tasks": [_task(card, now) for card in cards if card["task_id"]]})
    rest.fixed["GET /v1/nodes"] = (200, {"nodes": [_node(i, now) for i in range(3)]})
    rest.fixed["GET /v2/apps"] = (200, {"apps": [{**APP, "version": stamp(now - 3700)}]})
    rest.fixed["GET /v1/events"] = (200, {"events": _events(), "last": 1_795_449_600_123, "first": 1})
    fill_queues(rest, now)
    fill_records(rest, now)


def _of_master(_: Daemon, method: str, path: str, body: bytes, header: object) -> tuple[int, bytes]:
    """What a master answers: two roles, one of them shared with another framework, and an agent."""
    limited = {"limit": {"gpus": 1024.0}, "guarantee": {}, "consumed": {"gpus": 1020.0}}
    agents = [
        {
            "agent_info": {"id": {"value": AGENT.format(i)}, "hostname": host},
            "total_resources": [{"name": "gpus", "type": "SCALAR", "scalar": {"value": 8}}],
            "allocated_resources": [{"name": "gpus", "type": "SCALAR", "scalar": {"value": 2 * i}}],
        }
        for i, host in enumerate(HOSTS)
    ]
    told = {
        "/roles": {
            "roles": [
                {"name": "gpu-of-the-platform", "weight": 2.5, "quota": limited, "frameworks": ["f1", "f2"]},
                {"name": "*", "weight": 1.0, "frameworks": ["f3"]},
            ]
        },
        "/master/frameworks": {"frameworks": [{"id": "f1", "name": "g", "roles": ["gpu-of-the-platform"]}]},
        "/api/v1": {"get_agents": {"agents": agents}},
    }
    return 200, json.dumps(told[path]).encode()


def _events() -> list[dict[str, Any]]:
    event: dict[str, Any] = {
        **dict.fromkeys(get_type_hints(Event)),
        "apps": [],
        "at": AT,
        "user": "ann.of.the.platform@example.com",
    }
    job = {"job_id": f"shop_web.instance-{UUIDS[0]}._app", "queue": MAX_LENGTH, "exit_code": 137}
    told = "killed by SIGKILL: it used more memory than it had asked for, 4096 MiB"
    sick = {"gpu": "GPU-222fbf57-c73e-9aea-5239-e7d583afc8ba", "state": "sick", "user": None}
    return [
        {**event, "number": 7, "kind": "failed", **job, "message": told},
        {**event, "number": 1_795_449_600_123, "kind": "gpu", **sick, "message": "XID 79"},
    ]


def _task(card: dict[str, Any], now: float) -> dict[str, Any]:
    return {
        "id": card["task_id"], "job_id": card["job_id"], "name": "web", "state": "running", "agent_id": "S0",
        "hostname": card["hostname"], "attempt": 1, "rank": 0, "ports": [], "ports_problem": "", "healthy": None,
        "notice": None, "preempted_for": None, "gpu_ids": [card["uuid"]], "share": None, "covers": None,
        "launched_at": now - 3690, "started_at": now - 3690, "ended_at": None, "message": "",
    }  # fmt: skip


def _gpu(i: int, now: float) -> dict[str, Any]:
    job = f"shop_web.instance-{UUIDS[i % 2]}._app"
    held = {"job_id": job, "task_id": f"{job}.1", "use": (IDLE, BUSY)[i % 2]}
    sick = {
        "health": "sick", "reason": "XID 79, the GPU has fallen off the bus",
        "job_id": None, "task_id": None, "use": None,
    }  # fmt: skip
    return {
        **GPU, "uuid": f"GPU-{i}22fbf57-c73e-9aea-5239-e7d583afc8ba", "index": i, "minor": i, "hostname": HOSTS[i],
        "agent_id": AGENT.format(i),
        "since": now - 60,
        "model": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920, "health": "ok", "reason": "", "node_health": "ok",
        **(sick if i == 2 else held),
    }  # fmt: skip


def _shared(gpu: dict[str, Any]) -> dict[str, Any]:
    by = {"memory": "cooperative", "compute": "cooperative", "faults": "contained"}
    use = {
        "memory_mib": 18000, "most_memory_mib": 20100, "compute_pct": 24.5, "refused": 2, "windows_missed": 0,
        "problem": None,
    }  # fmt: skip
    part = {"method": "shim+windows", "instance": None, "guarantee": by, "job_name": "tenant", "used": None}
    sharing = {
        "state": "covered", "task_id": "cover.1", "memory_mib": 80896, "free_memory_mib": 40192,
        "free_compute_pct": 45.0, "method": "shim+windows", "domain": None,
    }  # fmt: skip
    shares = [
        {**part, "task_id": "a-00000006.1", "job_id": "a-00000006", "memory_mib": 20224, "memory_max_mib": 20224,
         "compute_pct": 25.0, "used": use},
        {**part, "task_id": "b-00000007.1", "job_id": "b-00000007", "memory_mib": 20480, "memory_max_mib": 40960,
         "compute_pct": 30.0},
    ]  # fmt: skip
    uuid = "GPU-722fbf57-c73e-9aea-5239-e7d583afc8ba"
    return {
        **gpu,
        "uuid": uuid,
        "index": 7,
        "minor": 7,
        "job_id": None,
        "task_id": None,
        "shares": shares,
        "sharing": sharing,
    }


def _node(i: int, now: float) -> dict[str, Any]:
    drain = {
        "target": "node", "name": HOSTS[i], "reason": "the fan is loud", "by": "ann", "since": 0.0, "deadline_at": None
    }  # fmt: skip
    return {
        **NODE, "hostname": HOSTS[i], "driver_version": "535.104.05", "cuda_version": "12.2", "volume": "535.104.05",
        "volume_problem": None, "isolation": "cgroup2", "control_ports": "denied", "source": "nvml",
        "reported_at": now - 1,
        "agent_id": AGENT.format(i), "drain": drain if i == 1 else None,
        "attributes": {"rack": "r7", "gpu_model": "NVIDIA-A100-SXM4-80GB", "room": "cellar-north"},
    }  # fmt: skip


def drawn(rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str, width: int) -> str:
    monkeypatch.setenv("MESOS_GPU_URL", rest.url)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    monkeypatch.setattr(contexts, "load", lambda: CONTEXTS)
    monkeypatch.setattr(logins, "load", lambda: {})
    monkeypatch.setattr(Daemon, "ask", _of_master)
    monkeypatch.setattr(Client, "status", lambda _: {"framework_id": "f1"})
    for module in (
        output,
        listing,
        queues_listing,
        top_queue,
        top_tasks,
    ):  # ages are the same on a slow machine, and long after the tests were collected
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW))
    with pytest.MonkeyPatch.context() as patch:
        if words.startswith(("queue show", "mesos")):  # these read all of the document
            patch.setitem(rest.fixed, "GET /v1/queues", (200, encode(DOCUMENT)))
        got = CliRunner().invoke(main, words.split(), prog_name="mesos-gpu", catch_exceptions=False)
    assert got.exit_code == 0, got.output
    return "\n".join(line.rstrip() for line in got.stdout.splitlines())


def piped(rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str) -> str:
    """What a program reads: as wide as it is, whatever the terminal."""
    drawn(rest, monkeypatch, words, 40)
    monkeypatch.setattr(output, "is_terminal", lambda _stream: False)
    return CliRunner().invoke(main, words.split(), prog_name="mesos-gpu", catch_exceptions=False).stdout


def sections(text: str) -> dict[str, str]:
    parts = re.findall(r"^=== (.+)\n((?:(?!===).*\n)*)", text, re.MULTILINE)
    return {title: body.rstrip("\n") for title, body in parts}


@contextlib.contextmanager
def in_utc() -> Iterator[None]:
    """Local time is UTC, whatever it is on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def rest() -> Iterator[FakeRest]:
    with in_utc(), FakeRest() as server:
        fill(server)
        yield server


@pytest.mark.parametrize("words", TABLES)
def test_table_shows_its_main_columns_in_any_width(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    golden, faults = sections(GOLDEN.read_text()), []
    for width in WIDTHS:
        lines = (text := drawn(rest, monkeypatch, words, width)).splitlines()
        if max(map(len, lines)) > width:
            faults.append(f"wider than {width}")
        if missing := set(TABLES[words]) - set(lines[0].split()):
            faults.append(f"at {width} without {missing}")
        if text != golden[f"{words} at {width}"]:
            faults.append(f"at {width} not as in {GOLDEN.name}:\n{text}")
    assert not faults


def test_table_that_a_program_reads_is_as_it_was(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = sections(GOLDEN.read_text())
    shown = {words: piped(rest, monkeypatch, words).rstrip("\n") for words in PIPED}
    assert shown == {words: golden[f"{words} piped"] for words in PIPED}


#: Lists, where their records are in what -o json prints, and what -o name prints of each ("": itself).
LISTS = {
    "report usage": ("rows", "queue"),
    "report wait": ("rows", "queue"),
    "report idle": ("rows", "queue"),
    "report fairness": ("rows", "queue"),
    "token list": ("tokens", "id"),
    "context list": ("contexts", "name"),
    "audit": (None, "id"),
    "webhook list": ("webhooks", "name"),
    "webhook dead ops": ("dead", "id"),
    "webhook versions": ("versions", "version"),
    "app tasks shop/web": (None, "id"),
    "app versions shop/web": (None, ""),
    "service list": ("services", "name"),
    "queue versions": ("versions", "version"),
    "access versions": ("versions", "version"),
    "access rights": ("rights", "name"),
    "gpu health": (None, "uuid"),
    "events": ("events", "number"),
    "uploads list": (None, "sha256"),
    "storage list": (None, "name"),
}


@pytest.mark.parametrize("words", LISTS)
def test_lists_have_the_same_records_in_every_form(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    at, id = LISTS[words]
    document = json.loads(piped(rest, monkeypatch, f"{words} --json"))
    assert json.loads(piped(rest, monkeypatch, f"{words} -o json")) == document
    assert yaml.safe_load(piped(rest, monkeypatch, f"{words} -o yaml")) == document
    records = document if at is None else document[at]
    names = [str(each[id] if id else each) for each in records]
    assert names
    assert piped(rest, monkeypatch, f"{words} -o name").splitlines() == names
    assert piped(rest, monkeypatch, f"{words} -q").splitlines() == names
    first = piped(rest, monkeypatch, words).splitlines()[0]
    column = first.split()[0].lower()
    shown = piped(rest, monkeypatch, f"{words} --columns {column} --sort -{column}")
    assert shown.splitlines()[0].split() == [column.upper()]


@pytest.mark.parametrize("words", [*LISTS, "ps", "gpus", "queue", "queue shares", "nodes", "app list"])
def test_lists_can_be_watched_for_changes(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    names = piped(rest, monkeypatch, f"{words} -q").splitlines()
    looks = iter([None, None])

    def sleep(_seconds: float) -> None:
        if next(looks, "it was looked at twice more"):
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    for form in ("-q -w", "-w"):
        looks = iter([None, None])
        got = CliRunner().invoke(
            main, f"{words} {form}".split(), prog_name="mesos-gpu", catch_exceptions=False
        )
        told = got.stdout.splitlines()
        assert (got.exit_code, got.stderr.strip()) == (130, ""), got.output
        wanted = names if "-q" in form else piped(rest, monkeypatch, words).splitlines()[: len(names) + 1]
        assert told[: len(wanted)] == wanted, "each row once"
        assert len(told) < 2 * len(wanted), "nothing has changed"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("report usage --csv -o yaml", "-o, --csv and --plot exclude each other"),
        ("report idle --plot -q", "-o, --csv and --plot exclude each other"),
        ("report budget --csv --json", "-o, --csv and --plot exclude each other"),
        ("audit -f -q", "remove the other format options"),
    ],
)
def test_forms_that_exclude_each_other_are_refused(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str, why: str
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", rest.url)
    got = call(*words.split())
    assert (got.exit_code, why in got.stderr) == (2, True), got.stderr
    assert not rest.asked


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("token list --name ann*", ["4f1c22ab"]),
        ("budget list --user ann*", ["ml ann.of.the.platform@example.com"]),
        ("budget list --queue research", [MAX_LENGTH]),
        ("context list --name lab", ["lab"]),
        ("webhook list --name do*", ["done"]),
        ("service list --app shop/web-canary", ["web"]),
        ("service list --name api", []),
        (
            "app tasks shop/web --node gpu-2",
            ["shop_web.instance-848f8361-3a3d-5b06-b8ad-d1f4d5f2bcd6._app.1"],
        ),
        ("app tasks shop/web --state staging", []),
        ("access rights --name gpu:*", ["gpu:reset"]),
        ("gpu health --state sick", ["GPU-222fbf57-c73e-9aea-5239-e7d583afc8ba"]),
        ("queue shares --queue production", ["production default"]),
        ("uploads list --state partial", ["f" * 64]),
        ("storage list --state new", ["new-results"]),
    ],
)
def test_lists_are_filtered(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str, names: list[str]
) -> None:
    assert piped(rest, monkeypatch, f"{words} -q").splitlines() == names


@pytest.mark.parametrize("words", ["queue list", "report usage", "report fairness"])
def test_tables_in_a_pipe_are_whole_and_without_colour(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in drawn(rest, monkeypatch, words, 80)
    monkeypatch.setattr(output, "is_terminal", lambda _stream: False)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("COLUMNS", "40")
    piped = CliRunner().invoke(main, words.split(), prog_name="mesos-gpu", catch_exceptions=False).stdout
    assert "\x1b" not in piped
    assert MAX_LENGTH in piped
    (row,) = [line.split() for line in piped.splitlines() if line.startswith(MAX_LENGTH)]
    assert len(row) == len(piped.splitlines()[0].split()), "a column for each word of a row"


def test_ps_shows_a_start_of_an_id_that_names_one_job(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [line.split()[0] for line in drawn(rest, monkeypatch, "ps -a", 60).splitlines()[1:]]
    assert shown[2:4] == ["shop_web.instance-c5d8ee65", "shop_web.instance-748f8361"]
    for short in shown:
        assert len([id for id in rest.jobs if id.startswith(short)]) == 1
        assert drawn(rest, monkeypatch, f"show {short}", 80)


def test_siblings_are_told_apart_in_a_narrow_terminal(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    siblings = [f"research/computer-vision/segmentation-of-{what}-scenes" for what in ("street", "indoor")]
    shares = [queue_share(path, guarantee_gpus=1024, held_gpus=1020.25) for path in siblings]
    rest.fixed["GET /v1/queue-shares"] = (200, {"shares": shares})
    rest.fixed["GET /v1/queues"] = (200, {"version": 3, "queues": {}})
    shown = [line.split()[0] for line in drawn(rest, monkeypatch, "queue list", 60).splitlines()[1:]]
    assert len(set(shown)) == len(siblings)


def test_table_keeps_the_use_of_a_share_beside_a_long_name(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gpu in rest.fixed["GET /v1/gpus"][1]["gpus"]:  # type: ignore[index]
        for i, share in enumerate(gpu["shares"]):
            share["job_id"] = f"nightly-export-of-{i}-of-all-tables-07f2c4d4"
    assert {"INDEX", "STATE", "USED_%"} <= set(
        drawn(rest, monkeypatch, "top --once", 80).split("\n")[0].split()
    )
    assert {"USED", "SHARE"} <= set(drawn(rest, monkeypatch, "gpus --wide", 80).split("\n")[0].split())


def test_list_of_apps_shows_restarts_the_next_start_and_the_last_exit(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = {
        "jobId": "shop_web.instance-1", "taskId": "shop_web.instance-1.1", "host": "n1", "exitCode": 1,
        "message": "Command exited with status 1", "timestamp": stamp(NOW - 12),
    }  # fmt: skip
    ends = {"inARow": 38, "crashing": True, "last": last, "nextAt": stamp(NOW + 122.5)}
    app = {**APP, "version": stamp(NOW - 3700), "tasksRunning": 0, "ends": ends}
    rest.fixed["GET /v2/apps"] = (
        200,
        {"apps": [app, {**app, "id": "/well", "ends": {**ends, "crashing": False}}]},
    )
    monkeypatch.setattr(crashing, "time", SimpleNamespace(time=lambda: NOW))
    head, ended, well = drawn(rest, monkeypatch, "app list", 80).splitlines()
    assert head.split() == ["ID", "RUNNING", "HEALTHY", "RESTARTS", "NEXT_START", "LAST_EXIT", "GPUS"]
    assert ended.split(maxsplit=5)[3:5] == ["38", "2m02s"]
    assert ended.split(maxsplit=5)[5].startswith("exit 1, 12s")
    assert well.split()[3:] == ["-", "-", "-", "1"]
    assert max(map(len, (head, ended, well))) <= 80


def test_tasks_of_an_app_name_the_gpus_that_they_share(
    rest: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", rest.url)
    (app,) = rest.fixed["GET /v2/apps"][1]["apps"]  # type: ignore[index]
    task = {
        "id": "a-00000006.1", "state": "TASK_RUNNING", "host": "n1", "ports": [], "stagedAt": stamp(0.0), "version": "",
    }  # fmt: skip
    path = f"GET /v2/apps{app['id']}"
    given = {"gpus": 0.25, "instances": 1, "tasks": [task], "versionInfo": {"lastConfigChangeAt": ""}}
    rest.fixed[path] = (200, {"app": {**app, **given}})
    (listed,) = json.loads(call("app", "tasks", app["id"], "--json").stdout)
    assert listed["gpuIds"] == ["GPU-722fbf57-c73e-9aea-5239-e7d583afc8ba"]


if __name__ == "__main__":
    with in_utc(), FakeRest() as server, pytest.MonkeyPatch.context() as patch:
        fill(server)
        texts = {
            f"{words} at {width}": drawn(server, patch, words, width) for words in TABLES for width in WIDTHS
        }
        texts |= {f"{words} piped": piped(server, patch, words).rstrip("\n") for words in PIPED}
        print("\n\n".join(f"=== {title}\n{text}" for title, text in texts.items()))
