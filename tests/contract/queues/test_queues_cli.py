"""`mesos-gpu queue` and its document: YAML out and in, what is asked, exit codes."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from mesos_gpu.cli import output
from tests.contract.access.test_access_cli import CliRig, done, failed
from tests.contract.cli.cli_rig import call
from tests.contract.queues.test_queues_api import node

FILE = """\
gpu_cost: {A100: 4}
pools:
  big:
    models: [A100]
queues:
  production:
    guarantee_gpus:
      big:
      - nodes: 2
        gpus: 8
    budget:
      gpu_hours: 1000
      on_empty: borrow
  research:
    guarantee_gpus: 16
    limit_gpus: 64
  research/vision:
    guarantee_gpus: 8
    weight: 2
    users:
      '*':
        max_gpus: 4.0
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CliRig]:
    rig = CliRig()
    monkeypatch.setenv("MESOS_GPU_URL", rig.server.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    yield rig
    rig.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(FILE)
    return path


def test_queue_tree_applied_as_shown_is_no_change(rig: CliRig, file: Path, tmp_path: Path) -> None:
    applied = done("queue", "apply", file, "--yes", "--comment", "the first")
    assert applied.endswith("Version 1: 3 queues.\n")
    shown = done("queue", "show")
    first, _, rest = shown.partition("\n")
    assert first.endswith(", by an unknown user: the first")
    assert yaml.safe_load(rest) == {"version": 1, **yaml.safe_load(FILE)}
    again = tmp_path / "again.yaml"
    again.write_text(shown)
    assert done("queue", "apply", again, "--yes") == "Version 1 is equal to the file; nothing was changed.\n"


def test_queue_show_command_includes_the_queues_below(rig: CliRig, file: Path) -> None:
    done("queue", "apply", file, "--yes")
    queues = yaml.safe_load(FILE)["queues"]
    below = {path: queues[path] for path in queues if path.partition("/")[0] == "research"}
    assert len(below) < len(queues)
    assert yaml.safe_load(done("queue", "show", "research")) == {"queues": below}
    assert json.loads(done("queue", "show", "research", "--json"))["queues"].keys() == below.keys()
    assert "version 1 has no queue resear\n" in failed(call("queue", "show", "resear"), 66)


def test_a_difference_is_told_with_the_exit_code_of_diff(rig: CliRig, file: Path) -> None:
    assert "+  research/vision:" in failed(call("queue", "diff", str(file)), 1)
    done("queue", "apply", file, "--yes")
    assert "is equal to version 1" in failed(call("queue", "diff", str(file)), 0)
    file.write_text("queues: {a/b: {}}")
    assert "/queues/a~1b: there is no queue a" in failed(call("queue", "diff", str(file)), 2)


def test_queue_diff_tells_the_tree_in_force_and_the_changes(rig: CliRig, file: Path) -> None:
    """The entry of odd days holds, or that of even ones, whatever day it is."""
    names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    today = datetime.now(UTC).weekday()
    odd, even = (", ".join(names[i::2]) for i in (0, 1))
    file.write_text(
        "pools: {big: {models: [A100]}}\n"
        "queues:\n  a:\n    pools: [big, default]\n    overflow_after_s: 60\n    hours:\n"
        f"    - {{from: '00:00', to: '24:00', days: [{odd}], guarantee_gpus: {{big: 3}}, weight: 7}}\n"
        f"    - {{from: '00:00', to: '24:00', days: [{even}], weight: 9}}\n  a/b: {{}}\n"
    )
    first, then = ('guarantee_gpus {"big": 3}, weight 7', "weight 9")[:: -1 if today % 2 else 1]
    applied = done("queue", "apply", file, "--yes").splitlines()
    at = next(i for i, line in enumerate(applied) if line.startswith("# In force until "))
    assert applied[at + 1] == f"#   a: {first}"
    shown = done("queue", "show")
    assert shown.splitlines()[1:3] == applied[at : at + 2]
    assert yaml.safe_load(shown)["queues"]["a/b"] == {}
    assert "# In force until" not in done("queue", "show", "--version", "1")
    file.write_text(file.read_text().replace("weight: 7", "weight: 8"))
    differs = call("queue", "diff", str(file))
    assert differs.exit_code == 1
    assert f"#   a: {first}" in differs.output.splitlines()
    explained = done("queue", "shares", "a/b").splitlines()
    assert [f"# {line}" for line in explained if not line.startswith("There are")][:2] == applied[at : at + 2]
    rows = [re.split(r"  +", line) for line in done("queue", "list", "-o", "wide").splitlines()]
    columns = dict(zip(rows[0], rows[2], strict=True))
    assert (columns["QUEUE"], columns["POOLS"], columns["OVERFLOW"]) == ("a/b", "big, default", "1m00s")
    assert then in dict(zip(rows[0], rows[1], strict=True))["NEXT"] or today % 2 == 0


#: A document that is wrong, what is told of it, and where.
WRONG = {
    "zone": (
        "hours: [{from: '22:00', to: '06:00', zone: Mars/Base}]",
        "hours/0/zone: there is no time zone Mars/Base",
    ),
    "no time": (
        "hours: [{from: '22:00', to: '22:00'}]",
        "hours/0/to: must differ from from, 22:00; for a whole day set",
    ),
    "day": (
        "hours: [{from: '22:00', to: '6:00', days: [tuesday]}]",
        "hours/0/days: must be a list of mon, tue",
    ),
    "no figure": (
        "hours: [{from: '22:00', to: '06:00', zone: Europe/Vienna}]",
        "hours/0: changes no figure, got ",
    ),
    "field": (
        "hours: [{from: '22:00', to: '06:00', gpus: 2}]",
        "hours/0/gpus: unknown field; known fields are from, to",
    ),
    "pool": ("pools: [a100]", "pools/0: there is no pool a100; pools are big, default"),
    "twice": ("pools: [big, big]", 'pools/1: appears twice: "big"; remove one'),
    "of a pool": (
        "guarantee_gpus: {a100: 4}",
        "guarantee_gpus/a100: there is no pool a100; pools are big, default",
    ),
    "by hours": (
        "hours: [{from: '22:00', to: '06:00', guarantee_gpus: {a100: 1}}]",
        "hours/0/guarantee_gpus/a100: there is no pool a100",
    ),
    "not its pool": (
        "{pools: [default], guarantee_gpus: {big: 1}}",
        "guarantee_gpus: it may not use pool big; add",
    ),
}


@pytest.mark.parametrize(("fields", "told"), WRONG.values(), ids=WRONG)
def test_hours_and_pools_that_are_wrong_are_named_and_nothing_is_changed(
    rig: CliRig, file: Path, fields: str, told: str
) -> None:
    body = fields if fields.startswith("{") else f"{{{fields}}}"
    file.write_text(f"pools: {{big: {{models: [A100]}}}}\nqueues: {{a: {body}}}\n")
    for words, code in ((("diff",), 2), (("apply", "--yes"), 65), (("apply", "--dry-run"), 65)):
        said = failed(call("queue", words[0], str(file), *words[1:]), code)
        assert said.count(f"/queues/a/{told.partition(':')[0]}:") == 1, "once is enough"
        assert f"/queues/a/{told}" in said
        assert "To fix:" in said
    assert json.loads(done("queue", "show", "--json"))["version"] == 0


@pytest.mark.parametrize(
    "fields",
    ["guarantee_gpus: {big: 1}", "hours: [{from: '00:00', to: '23:00', guarantee_gpus: {big: 1}}]"],
)
def test_a_guarantee_of_a_pool_without_nodes_is_refused(rig: CliRig, file: Path, fields: str) -> None:
    node(rig, "a1", 4)
    file.write_text(f"pools: {{big: {{attributes: {{rack: r9}}}}}}\nqueues: {{a: {{{fields}}}}}\n")
    said = failed(call("queue", "apply", str(file), "--yes"), 65)
    assert "of pool big together, which has 0" in said
    assert "To fix:" in said
    assert json.loads(done("queue", "show", "--json"))["version"] == 0


def test_an_earlier_version_is_put_again(rig: CliRig, file: Path) -> None:
    done("queue", "apply", file, "--yes")
    file.write_text("queues: {}")
    done("queue", "apply", file, "--yes")
    assert done("queue", "rollback", "1", "--yes").endswith("Version 3: 3 queues.\n")
    rows = done("queue", "versions").splitlines()
    assert [row.split()[0] for row in rows] == ["VERSION", "3", "2", "1"]


def test_a_file_of_another_version_is_refused(rig: CliRig, file: Path) -> None:
    done("queue", "apply", file, "--yes")
    file.write_text("version: 0\nqueues: {}")
    assert "is based on version 0" in failed(call("queue", "apply", str(file), "--yes"), 73)


def test_the_queue_alone_goes_on_listing_what_waits(rig: CliRig) -> None:
    assert done("queue").split()[:3] == ["PLACE", "ID", "QUEUE"]
    assert yaml.safe_load(done("queue", "--json")) == {"jobs": [], "queues": []}


def test_a_queue_is_held_drained_and_resumed(rig: CliRig, file: Path) -> None:
    done("queue", "apply", file, "--yes")
    held = done("queue", "hold", "research/vision", "--comment", "new driver")
    assert held == "research/vision: no job of it starts, running jobs continue.\n"
    assert done("queue", "hold", "research/vision") == "research/vision: already in that state.\n"
    assert "running jobs are ended with notice" in done("queue", "drain", "research/vision")
    spec = json.loads(done("queue", "resume", "research/vision", "--json"))
    assert (spec["stop"], spec["version"], spec["weight"]) == ("none", 4, 2)
    assert "new driver" in done("queue", "versions")
    assert "there is no queue nobody" in failed(call("queue", "hold", "nobody"), 66)


def test_queue_resume_below_a_queue_on_hold_says_so(rig: CliRig, file: Path) -> None:
    done("queue", "apply", file, "--yes")
    for path in ("research", "research/vision"):
        done("queue", "hold", path)
    told = "no job of it starts, because research is on hold (mesos-gpu queue resume research)"
    assert done("queue", "resume", "research/vision") == f"research/vision: {told}.\n"
    assert done("queue", "resume", "research") == "research: its jobs start again.\n"


def test_a_file_has_no_defaults_and_numbers_as_people_write_them(rig: CliRig, file: Path) -> None:
    text = "queues:\n  a:\n    min_runtime_s:\n      reclaim: 30\n    notice_s: 60\n  b:\n    notice_s: 0.5\n"
    file.write_text(text)
    done("queue", "apply", file, "--yes")
    assert done("queue", "show", "a") + done("queue", "show", "b").removeprefix("queues:\n") == text


def test_queue_refusal_reasons_are_said_once_or_listed(rig: CliRig, file: Path) -> None:
    file.write_text("queues: {a: {max_gpus_per_job: 1, max_timeout_s: 60}}")
    done("queue", "apply", file, "--yes")
    one = failed(call("run", "--queue", "b", "--gpus", "1", "--", "true"), 65)
    assert one.splitlines()[0] == "Error: --queue: there is no queue b; there are a, default"
    several = failed(call("run", "--queue", "a", "--gpus", "2", "--", "true"), 65).splitlines()
    assert several[0] == "Error: refused for 2 reasons"
    assert [line.split(":")[0] for line in several[1:]] == [
        "  --gpus",
        "  max_timeout_s of queue a is 60, and it has no time limit",
        "To fix",
    ]
    assert several[2].endswith("limit: set --timeout")


def test_a_dry_run_shows_changes_and_makes_none(rig: CliRig, file: Path) -> None:
    node(rig, "a1", 4)
    file.write_text("queues: {a: {guarantee_gpus: 2}}")
    told = done("queue", "apply", file, "--dry-run").splitlines()
    assert "+  a:" in told
    rows = {row.split()[0]: row.split()[1:] for row in told[told.index("") + 1 :]}
    assert rows["QUEUE"] == [
        "POOL",
        "GUARANTEE",
        "FAIR_SHARE",
        "GAINS",
        "IF_ASKED",
        "GIVES_BACK",
        "HELD",
        "PENDING",
    ]
    assert rows["a"][:8] == ["default", "-", ">", "2", "-", ">", "0", "0"]
    plan = json.loads(done("queue", "apply", file, "--dry-run", "--json"))
    assert [(each["path"], each["if_asked_gpus"]) for each in plan["queues"]] == [("a", 4), ("default", None)]
    assert json.loads(done("queue", "show", "--json"))["version"] == 0


def test_the_queues_are_listed_at_80_columns_and_piped(
    rig: CliRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("queues: {a: {guarantee_gpus: 2, limit_gpus: 3}, a/b: {guarantee_gpus: 1, stop: hold}}")
    done("queue", "apply", file, "--yes")
    rows = [line.split() for line in done("queue", "list").splitlines()]
    assert [row[0] for row in rows] == ["QUEUE", "a", "a/b"], "no node has told of its GPUs"
    node(rig, "a1", 4)
    for _ in range(2):
        submit(rig, queue="default", gpus=2, preemptible=True)
    monkeypatch.setattr(output, "is_terminal", lambda stream: stream is sys.stdout)
    monkeypatch.setenv("COLUMNS", "80")
    lines = done("queue", "list").splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert rows[0] == ["QUEUE", "GUARANTEE", "LIMIT", "HELD", "BORROWED", "PENDING", "FAIR_SHARE", "STOP"]
    assert rows[1] == ["a", "2", "3", "0", "0", "0", "0", "-"]
    assert rows[2] == ["a/b", "1", "-", "0", "0", "0", "0", "hold"]
    name, guarantee, limit, held, _, pending, share, _ = rows[3]
    assert (name, guarantee, limit, share) == ("default", "0", "-", "4")
    assert int(held) + int(pending) == 4
    told = json.loads(done("queue", "list", "--json"))
    assert ([*told["queues"]], len(told["shares"])) == (["a", "a/b"], 3)


def submit(rig: CliRig, **fields: object) -> None:
    response = rig.call("anybody", "POST", "/v1/jobs", json={"command": "true", **fields})
    assert response.ok, response.text
