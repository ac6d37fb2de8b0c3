"""`mesos-gpu app`, `deployment`, `diff` and `why` of an app against a real scheduler: output, exit codes, wrong use."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.cli.apps import rolling
from mesos_gpu.cli.marathon import Marathon
from mesos_gpu.engine import events as ev
from tests.conftest import wait_until
from tests.contract.played import Played
from tests.doubles.builders import gpu, offer

APP = {"cmd": "sleep 1000", "cpus": 0.1, "mem": 16}
DUMP = Path(__file__).parents[2] / "data/marathon/groups.json"
DEPLOYMENT = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    rig = Played()
    yield rig
    rig.close()


@pytest.fixture
def rig(played: Played, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Played:
    """Without apps, with room for some, and the current directory an empty one."""
    monkeypatch.setenv("MESOS_GPU_URL", played.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rolling, "_LOOK_S", 0.0)
    played.room, played.works, played.ends_as = True, True, ""
    played.call("DELETE", "/v2/groups/?force=true")
    played.settled()
    return played


def call(*words: str, stdin: object = None) -> Result:
    text = None if stdin is None else json.dumps(stdin)
    return CliRunner().invoke(main, words, input=text, prog_name="mesos-gpu")


def good(*words: str, stdin: object = None) -> str:
    got = call(*words, stdin=stdin)
    assert got.exit_code == 0, got.output
    return got.stdout


def bad(code: int, *words: str, stdin: object = None) -> str:
    got = call(*words, stdin=stdin)
    assert got.exit_code == code, got.output
    return got.stderr


def made(id: str, **fields: Any) -> None:
    good("app", "create", "-", "--wait", stdin={"id": id, **APP, **fields})


# ---- a life


def test_an_apps_life(rig: Played) -> None:
    app = {"id": "/shop/web", **APP, "instances": 2, "env": {"A": "1"}, "healthChecks": []}
    Path("web.json").write_text(json.dumps(app))
    told = good("app", "create", "web.json", "--wait").splitlines()
    assert re.fullmatch(rf"/shop/web: deployment {DEPLOYMENT}", told[0])
    assert told[-1] == "/shop/web: done"
    assert all(re.fullmatch(r"step \d of 2: (add|scale) /shop/web, \d of 2 up", line) for line in told[1:-1])
    listed = good("app", "list").splitlines()
    assert listed[0].split()[:6] == ["ID", "RUNNING", "HEALTHY", "CPUS", "MEM_MIB", "GPUS"]
    assert listed[1].split()[:6] == ["/shop/web", "2/2", "-", "0.1", "16", "0"]
    assert "already exists" in bad(73, "app", "create", "web.json")

    good("app", "scale", "shop/web", "+2", "--wait")
    assert rig.shown("/shop/web")["instances"] == 4
    good("app", "scale", "/shop/web", "-3", "--wait")
    assert len(rig.shown("/shop/web")["tasks"]) == 1
    assert "has only 1 instances, fewer than 5" in bad(73, "app", "scale", "/shop/web", "-5")

    good("app", "update", "/shop/web", "env.A=2", "env.B=x y", "cmd=sleep 2", "--wait")
    assert rig.shown("/shop/web")["env"] == {"A": "2", "B": "x y"}
    got = call("diff", "web.json")
    assert (got.exit_code, got.stdout.splitlines()) == (
        1,
        [
            "/shop/web would change: 2 instances would restart",
            '  ~ cmd: "sleep 2" -> "sleep 1000"',
            '  ~ env.A: "2" -> "1"',
            '  - env.B: "x y"',
            "  ~ instances: 1 -> 2",
        ],
    )
    versions = json.loads(good("app", "versions", "shop/web", "--json"))
    assert len(versions) == 4
    back = good("app", "rollback", "shop/web", "--wait").splitlines()
    assert back[0] == f"/shop/web: back to version {versions[1]}"
    assert rig.shown("/shop/web")["env"] == {"A": "1"}
    good("app", "rollback", "shop/web", "--version", versions[-1], "--wait")
    assert call("diff", "web.json").exit_code == 0

    before = {task["id"] for task in rig.shown("/shop/web")["tasks"]}
    good("app", "restart", "/shop/web", "--wait")
    assert not before & {task["id"] for task in rig.shown("/shop/web")["tasks"]}
    good("app", "delete", "/shop/web", "--wait")
    error = bad(66, "app", "show", "/shop/web")
    assert error == (
        "Error: App '/shop/web' does not exist\nTo fix: list existing apps with `mesos-gpu app list`\n"
    )


def test_an_app_is_shown(rig: Played) -> None:
    made("/web", instances=2, labels={"tier": "a b"}, backoffSeconds=7)
    lines = dict(
        re.split(r"\s{2,}", line, maxsplit=1) for line in good("app", "show", "web").splitlines()[:20] if line
    )
    assert (lines["id"], lines["instances"], lines["command"]) == ("/web", "2 of 2 running", "sleep 1000")
    assert (lines["labels"], lines["backoffSeconds"]) == ("'tier=a b'", "7")
    assert "killSelection" not in lines, "it has its default"
    assert not {"env", "constraints", "container", "last failure"} & lines.keys(), "it has none"
    good("app", "update", "/web", "--unset", "labels.tier", "mem=20.5", "--wait")
    old = json.loads(good("app", "versions", "web", "--json"))[-1]
    assert "'tier=a b'" in good("app", "show", "web", "--version", old)
    now = json.loads(good("app", "show", "web", "--json"))
    assert (now["labels"], now["mem"], len(now["tasks"])) == ({}, 20.5, 2)
    assert "is not a version, such as 2015" in bad(2, "app", "show", "web", "--version", "first")
    rows = good("app", "tasks", "web").splitlines()
    assert rows[0].split() == ["TASK", "STATE", "HEALTHY", "HOST", "PORTS", "AGE", "CURRENT", "GPUS"]
    assert [row.split()[1] for row in rows[1:]] == ["running", "running"]
    # What was shown can be sent back, and is what is there.
    assert call("diff", "-", stdin=now).exit_code == 0
    assert good("app", "update", "-", stdin={"app": now}) == "/web: done, no deployment is needed\n"


# ---- files


def test_lists_and_groups(rig: Played) -> None:
    both = [{"id": "a", **APP}, {"id": "b", **APP}]
    good("app", "create", "-", "--wait", stdin=both)
    assert "these apps exist already: /a; nothing was created" in bad(
        73, "app", "create", "-", stdin=[both[0], {"id": "c"}]
    )
    group = {"id": "/team", "apps": both, "groups": [{"id": "deep", "apps": [{"id": "c", **APP}]}]}
    good("app", "create", "-", "--wait", stdin=group)
    assert len(good("app", "list", "/team").splitlines()) == 4
    bad(73, "app", "create", "-", stdin=group)
    assert len(good("app", "list").splitlines()) == 6
    smaller = {"id": "/team", "apps": [{**both[0], "mem": 17}]}
    got = call("diff", "-", stdin=smaller)
    assert got.stdout == (
        "/team/a would change: 1 instance would restart\n  ~ mem: 16 -> 17\n"
        "/team/b would be deleted, with its 1 instance\n"
    )
    good("app", "update", "-", "--wait", stdin=smaller)
    assert [app["id"] for app in json.loads(good("app", "list", "team", "--json"))] == [
        "/team/a",
        "/team/deep/c",
    ]
    error = bad(66, "app", "delete", "team")
    assert (
        error
        == "Error: /team is a group, not an app\nTo fix: delete all apps below it with: mesos-gpu app delete -r /team\n"
    )
    told = json.loads(good("app", "delete", "-r", "team", "--json"))
    assert [each["id"] for each in told] == ["/team"]
    error = bad(66, "app", "delete", "x", "a", "y", "b")
    assert error.count("does not exist") == 2
    rig.settled()
    assert good("app", "list").count("\n") == 1


def dump() -> Any:
    """GET /v2/groups of a Marathon 1.4."""
    return json.loads(DUMP.read_text())


def test_dump_of_marathons_groups_is_shown_created_and_leaves_other_apps_alone(rig: Played) -> None:
    made("/other")
    Path("all.json").write_bytes(DUMP.read_bytes())
    got = call("diff", "all.json")
    new = [
        f"{id} would be new, with 1 instance"
        for id in ("/shop/front/ui", "/shop/store/db", "/shop/web", "/top")
    ]
    assert (got.exit_code, got.stdout.splitlines()) == (1, new)
    told = got.stderr.splitlines()
    assert told[0].startswith(
        "mesos-gpu: all.json: pod /shop/front/sidecar is ignored: pods are not supported"
    )
    assert "unknown fields are ignored" not in got.stderr, "what Marathon prints of old fields is no mistake"
    assert sum("/shop/web: /role has no effect" in line for line in told) == 1
    got = call("app", "create", "all.json", "--wait")
    assert (got.exit_code, got.stdout.splitlines()[-1]) == (0, "/: done")
    assert "pod /shop/front/sidecar is ignored" in got.stderr
    assert "/shop/web: /acceptedResourceRoles has no effect" in got.stderr
    assert sorted(app["id"] for app in json.loads(good("app", "list", "--json"))) == [
        "/other", "/shop/front/ui", "/shop/store/db", "/shop/web", "/top"
    ]  # fmt: skip
    assert rig.shown("/shop/front/ui")["dependencies"] == ["/shop/web", "/shop/store"]
    assert rig.shown("/top")["portDefinitions"][0]["port"] == 10001
    assert call("diff", "all.json").exit_code == 0
    assert "exist already: /shop/front/ui" in bad(73, "app", "create", "all.json")
    changed = dump()
    changed["apps"][0]["mem"] = 17
    assert good("app", "update", "-", "--wait", stdin=changed).splitlines()[-1] == "/: done"
    assert [rig.shown(id)["mem"] for id in ("/top", "/other")] == [17, 16]


def test_dump_of_marathons_groups_with_problems_names_each_app_and_line(rig: Played) -> None:
    wrong = dump()
    wrong["groups"][0]["groups"][0]["apps"][0] |= {"mem": -1, "residency": {}}
    wrong["groups"][0]["apps"][0]["cpus"] = "x"
    Path("all.json").write_text(json.dumps(wrong, indent=1))
    error = bad(65, "app", "create", "all.json")
    lines = {line.partition(", ")[2] for line in error.splitlines() if line.startswith("  line ")}
    assert "/shop/web: /cpus: must be a number" in lines
    assert "/shop/store/db: /mem: is less than 0" in lines
    assert any(
        line.startswith("/shop/store/db: /residency: residency and persistent volumes must be")
        for line in lines
    )
    number = next(int(line.split()[1].rstrip(",")) for line in error.splitlines() if "/mem" in line)
    assert '"mem": -1' in Path("all.json").read_text().splitlines()[number - 1]
    assert json.loads(good("app", "list", "--json")) == []
    del wrong["apps"][0]["id"]
    assert "stdin: /apps/0/id: is missing" in bad(65, "app", "create", "-", stdin=wrong)
    assert "holds no app" in bad(65, "app", "create", "-", stdin={"id": "/", "apps": [], "groups": []})


def test_pods_of_a_group_are_left_out_and_named(rig: Played) -> None:
    group = {"id": "/team", "apps": [{"id": "a", **APP}], "pods": [{"id": "p", "containers": []}]}
    got = call("app", "create", "-", "--wait", stdin=group)
    assert (got.exit_code, "pod /team/p is ignored" in got.stderr) == (0, True)
    assert len(json.loads(good("app", "list", "--json"))) == 1


def test_an_update_creates_nothing_and_replaces_only_what_it_is_told_to(rig: Played) -> None:
    new = {"id": "/new", **APP}
    for value in (new, [new], {"id": "/new", "apps": []}):
        assert "not found: /new; nothing was changed" in bad(66, "app", "update", "-", stdin=value)
    assert call("diff", "-", stdin=new).stdout == "/new would be new, with 1 instance\n"
    made("/a", labels={"x": "y"})
    assert call("diff", "-", stdin={"id": "a", **APP}).exit_code == 0
    got = call("diff", "--replace", "-", stdin={"id": "a", **APP})
    assert got.stdout.splitlines()[1] == '  - labels.x: "y"'
    good("app", "update", "--replace", "-", "--wait", stdin={"id": "a", **APP})
    assert rig.shown("/a")["labels"] == {}
    preview = json.loads(call("diff", "--json", "-", stdin=[{"id": "a", "mem": 1}]).stdout)
    assert [preview["changes"][0][side]["mem"] for side in ("before", "after")] == [16, 1]
    assert preview["steps"] == [{"actions": [{"action": "RestartApplication", "app": "/a"}]}]


def test_wrong_files_are_told_all_their_problems(rig: Played) -> None:
    wrong = [{"id": "a", "cmd": "sleep 1", "cpus": "x"}, {"id": "b", "cmd": "sleep 1", "mem": -1}]
    error = bad(65, "app", "create", "-", stdin=wrong)
    assert "  line 1, (0)/cpus: must be a number\n" in error
    assert "  line 1, (1)/mem: is less than 0\n" in error
    assert bad(2, "diff", "-", stdin=wrong) == error, "diff has the exit code of diff(1)"
    for value, words in (
        (None, "stdin: expected an app, got nothing"),
        ([], "stdin holds no app"),
        ([1], "expected an app at (0), got 1"),
        ({"cmd": "x"}, "stdin: /id: is missing"),
        ([{"id": "/a"}, {"id": "/"}], "stdin: (1)/id: is missing"),
        ([{"id": "/../../a", "cmd": "x"}], "stdin: (0)/id: '/../../a' is above the root"),
        ({"id": "/a", "containers": []}, "is a pod, and pods are not supported"),
    ):
        assert words in bad(65, "app", "create", "-", stdin=value)
    got = CliRunner().invoke(main, ["app", "create", "-"], input="id: [", prog_name="mesos-gpu")
    assert (got.exit_code, "neither JSON nor YAML at line 1" in got.stderr) == (65, True)
    got = call("diff", "-", stdin={"id": "/a", **APP, "instancess": 3})
    assert got.exit_code == 1
    assert (
        got.stderr
        == "mesos-gpu: stdin: /a: unknown fields are ignored: instancess (did you mean instances?)\n"
    )


def test_refused_app_file_is_reported_with_line_and_field(rig: Played, tmp_path: Path) -> None:
    good("app", "create", "-", stdin={"id": "/there", **APP})
    file = tmp_path / "apps.yaml"
    app = "cmd: sleep 1\n{0}mem: -5\n{0}healthChecks:\n{0}- protocol: HTTQ\n"
    update, create = ("app", "update"), ("app", "create")
    for words, text, lines in (
        (update, "id: /there\n" + app.format(""), {3: "/mem", 5: "/healthChecks(0)/protocol"}),
        (update, '{"app":\n {"id": "/there",\n\t"mem": -1}}', {3: "/mem"}),
        (create, "- id: /a\n  cmd: x\n\n- id: /b\n  " + app.format("  "), {6: "(1)/mem", 8: "(1)/health"}),
        (create, "id: /grp\napps:\n- id: b\n  " + app.format("  "), {5: "/apps(0)/mem", 7: "/apps(0)/he"}),
        (("diff",), "# of one\nid: /there\nmem: -1\n", {3: "/mem"}),
    ):
        file.write_text(text)
        said = bad(2 if words == ("diff",) else 65, *words, str(file))
        assert all(f"  line {line}, {path}" in said for line, path in lines.items()), said


def test_a_wrong_update_says_what_is_wrong_with_it(rig: Played) -> None:
    made("/once")
    for words, said in (
        (("update", "/once"), "is not a file; to change an app with that ID"),
        (("update", "/once", "instances"), "is not KEY=VALUE"),
        (("update", "/once", "instancez=3"), "did you mean instances?"),
        (("update", "/once", "mem=1", "--replace"), "--replace needs a FILE"),
        (("update", "/once", "--unset", "container"), "the app does not have it"),
        (("update", "/once", "--unset", "env.X"), "the app does not have it"),
        (("update", "/A", "mem=1"), "'/A' is not an app's ID, such as /shop/db"),
        (("scale", "/once", "many"), "'many' is not a number of instances"),
        (("scale", "/once", "--forse", "1"), "'--forse' is not a number of instances"),
        (("scale", "/once", "1", "--timeout", "3"), "--timeout needs --wait"),
        (("delete", "/"), "'/' is not an app's ID"),
        (("list", "/once", "--label", "x"), "exclude each other"),
    ):
        assert said in bad(2, "app", *words), words
    assert "/instances: is less than 0" in bad(65, "app", "update", "/once", "instances=-1")
    assert "cannot parse label selector" in bad(65, "app", "list", "--label", "===")
    assert "no earlier version that differs" in bad(66, "app", "rollback", "/once")
    bad(66, "app", "rollback", "/once", "--version", "2015-02-03T12:30:00.000Z")
    bad(66, "app", "update", "/b", "mem=1")


# ---- deployments


def test_a_deployment_that_is_stuck(rig: Played) -> None:
    got = call("app", "create", "-", "--wait", "--timeout", "0.3", stdin={"id": "/big", **APP, "gpus": 9})
    assert got.exit_code == 124
    match = re.match(rf"/big: deployment ({DEPLOYMENT})", got.stdout)
    assert match
    id = match[1]
    assert f"deployment {id} is not finished after 0.3 s: " in got.stderr
    assert f"to undo it: mesos-gpu deployment stop {id}" in got.stderr
    error = bad(73, "app", "scale", "big", "3")
    assert error.startswith(f"Error: locked by deployment {id}\nTo fix: wait for its end")
    wait_until("the reason", lambda: "9 GPUs" in good("deployment", "show", id))
    listed = good("deployment", "list").splitlines()[1]
    assert listed.split()[0] == id
    assert "scale /big  waits for 1 new instance to be placed" in listed
    shown = good("deployment", "show", id[:6])
    assert re.search("\nwhy    /big .*9 GPUs", shown)
    assert shown.splitlines()[-1].split() == ["2", "now", "scale", "/big"]
    assert re.search(f"deployment +{id} waits for", good("app", "show", "big"))
    got = call("app", "tasks", "big")
    assert re.search("1 of 1 instances have no task: .*9 GPUs", got.stderr)
    said = good("why", "/big")
    assert said.startswith(f"/big: 0 of 1 instances run; deployment {id} waits for 1 new instance")
    assert "It can never run on the current nodes." in said
    assert json.loads(good("why", "/big", "--json"))["instance"]["can_ever_run"] is False
    told = good("deployment", "stop", id[:6], "--wait").splitlines()
    assert told[0] == f"{id}: stopped"
    assert told[-1].startswith("undoing it: done")
    bad(66, "app", "show", "big")
    assert "no deployment 0 is in progress" in bad(66, "deployment", "stop", "0")
    bad(2, "deployment", "stop", "../x")


def test_overdue_deployment_is_shown_everywhere_and_undone(rig: Played) -> None:
    made("/late")
    rig.full()
    words = ("app", "update", "/late", "env.A=1", "gpu.progress_deadline_s=20")
    id = json.loads(good(*words, "--json"))["deploymentId"]
    said = f"overdue: no progress for 20 s (progress_deadline_s), to undo it: mesos-gpu deployment stop {id}"
    wait_until("it is overdue", lambda: said in good("deployment", "list"))
    assert said in good("why", "/late")
    assert said in good("app", "show", "/late")
    assert re.search("\noverdue +/late\n", good("deployment", "show", id))
    assert f"deployment {id} of /late: overdue: /late, {said.removeprefix('overdue: ')}" in good(
        "events", "-o", "json"
    )
    error = bad(73, "app", "scale", "/late", "3")
    assert f"undo it (mesos-gpu deployment stop {id}), or abort it with --force" in error
    good("app", "update", "/late", "gpu.auto_revert=true", "--force")
    wait_until("it is undone", lambda: "env" not in rig.shown("/late"))
    rig.settled()
    (task,) = rig.shown("/late")["tasks"]
    assert task["id"].endswith(".1"), "the instance that ran was kept"


def test_an_update_is_undone(rig: Played) -> None:
    made("/a", instances=2)
    rig.full()
    id = json.loads(good("app", "update", "/a", "env.A=1", "--json"))["deploymentId"]
    assert good("deployment", "stop", id, "--wait").splitlines()[-1].startswith("undoing it: done")
    rig.room = True
    assert "env" not in rig.shown("/a")
    rig.room = True
    good("app", "update", "/a", "args=sleep,8", "--unset", "cmd", "--wait")
    app = rig.shown("/a")
    assert (app["args"], "cmd" in app, app["instances"], app["mem"]) == (["sleep", "8"], False, 2, 16)


def test_command_why_gives_failures_of_an_app_as_the_reason(rig: Played) -> None:
    rig.works = False
    good("app", "create", "-", stdin={"id": "/sad", **APP})
    words = r"its instances keep crashing, \d+ times in a row, last on a1.example \w+ ago: out of luck"
    wait_until("a failure", lambda: re.search(words, good("why", "/sad")))
    (one,) = json.loads(good("deployment", "list", "--json"))
    assert (
        good("deployment", "stop", one["id"], "--force")
        == f"{one['id']}: stopped; its apps are not restored\n"
    )
    assert json.loads(good("deployment", "list", "--json")) == []


def test_app_whose_deployment_was_over_at_once_is_not_waited_for(
    rig: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "_LOOK_S", 60.0)
    rig.ends_as, looks, find = "TASK_FAILED", [], rolling.find

    def over_at_the_second_look(marathon: Marathon, id: str) -> Any:
        looks.append(id)
        wait_until("it is over", lambda: len(looks) == 1 or find(marathon, id) is None)
        return find(marathon, id)

    monkeypatch.setattr(rolling, "find", over_at_the_second_look)
    got = call("app", "create", "-", "--wait", stdin={"id": "/quick", **APP})
    assert (got.exit_code, len(looks)) == (73, 2), got.output


@pytest.mark.parametrize("state", ["TASK_FAILED", "TASK_FINISHED"])
def test_an_app_that_runs_and_ends_is_no_success(
    rig: Played, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(rolling, "_LOOK_S", 60.0)
    rig.ends_as = state
    got = call("app", "create", "-", "--wait", stdin={"id": "/crash", **APP})
    assert got.exit_code == 73, got.output
    assert "done" not in got.stdout
    assert "/crash does not stay up: " in got.stderr
    assert "out of luck" in got.stderr
    assert "mesos-gpu why /crash; to go back: mesos-gpu app rollback /crash" in got.stderr

    def ends() -> dict[str, Any]:
        ends: dict[str, Any] = rig.ask("GET", "/v2/apps/crash?embed=app.ends")["app"]["ends"]
        return ends

    wait_until("the third", lambda: ends()["inARow"] >= 3)
    said = good("why", "/crash")
    assert re.search(r"keep crashing, \d+ times in a row, last on a1.example", said)
    assert "stderr" in said, "what it wrote, or why that cannot be read"
    assert re.search(r"keep crashing, \d+ times in a row", call("app", "tasks", "/crash").stderr)
    assert json.loads(good("why", "/crash", "--json"))["stderr"]
    listed = call("app", "list")
    heads = listed.stdout.splitlines()[0].split()
    row = re.split(r"\s{2,}", listed.stdout.splitlines()[1])
    cells = dict(zip(heads, row, strict=False))
    assert int(cells["RESTARTS"]) >= 3
    assert re.match(r"(exit 0, )?\d+s ago: ", cells["LAST_EXIT"])
    assert re.search(
        r"mesos-gpu: /crash: its instances keep crashing.*\nmesos-gpu:   stderr: ", listed.stderr
    )
    shown = call("app", "show", "/crash")
    assert re.search(r"\nrestarts +\d+ in a row\n", shown.stdout)
    assert re.search(r"\nlast exit +\d+s ago on a1.example: ", shown.stdout)
    assert "  stderr: " in shown.stderr
    (one,) = rig.ask("GET", "/v2/apps?crashing=true")["apps"]
    assert (one["id"], "ends" in one) == ("/crash", False)
    if state == "TASK_FINISHED":
        assert "an app must keep running" in said, "an end with 0 does not read as success"
    rig.ends_as = ""
    monkeypatch.setattr(rolling, "_LOOK_S", 0.0)
    good("app", "update", "/crash", "env.A=1", "--wait")
    assert "ends" not in rig.shown("/crash")
    assert "RESTARTS" not in good("app", "list")
    assert rig.ask("GET", "/v2/apps?crashing=true")["apps"] == []


def test_a_change_that_is_overtaken_is_no_success(rig: Played) -> None:
    made("/a")
    rig.full()
    with subprocess.Popen(
        [sys.executable, "-m", "mesos_gpu", "app", "scale", "/a", "3", "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("/a: deployment")
        assert process.stdout.readline() == "step 1 of 1: scale /a, 1 of 3 up\n"
        good("app", "scale", "/a", "1", "--force")
        _, error = process.communicate(timeout=60)
    assert process.returncode == 73
    assert "is over, but /a is not in the planned state" in error


def test_json_goes_to_stdout_and_progress_to_stderr(rig: Played) -> None:
    got = call("app", "create", "-", "--wait", "--json", stdin={"id": "/a", **APP})
    assert json.loads(got.stdout)["id"] == "/a"
    assert all(line.startswith("mesos-gpu: step ") for line in got.stderr.splitlines())
    made_by = json.loads(good("app", "scale", "a", "1", "--json"))
    assert set(made_by) == {"version", "deploymentId", "warnings"}


def test_a_bar_on_a_terminal(rig: Played) -> None:
    made("/a")
    primary, secondary = pty.openpty()
    rig.full()
    with subprocess.Popen(
        [sys.executable, "-m", "mesos_gpu", "app", "scale", "/a", "2", "--wait"],
        stdout=secondary,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(secondary)
        seen = b""
        while b"to be placed" not in seen:
            seen += os.read(primary, 4096)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    os.close(primary)
    assert b"[##########----------]   50%  step 1 of 1: scale /a, 1 of 2 up, /a waits for 1 new" in seen
    assert process.returncode == 130
    assert b"continues; to undo it: mesos-gpu deployment stop" in error


# ---- GPUs, completion


def test_tasks_with_their_gpus(rig: Played) -> None:
    rig.full()
    gpus = (gpu("GPU-1"), gpu("GPU-2"))
    rig.node("g", gpus)
    good("app", "create", "-", stdin={"id": "/train", **APP, "gpus": 2})

    def placed() -> object:
        rig.report(*gpus, agent="g")  # time flies: what was reported is soon too old
        rig.daemon.put(ev.OffersArrived((offer(f"g-{rig.clock.time}", "g", gpus=2),)))
        return rig.shown("/train")["tasks"]

    wait_until("it has its GPUs", placed)
    assert good("app", "tasks", "train").splitlines()[1].split()[-2:] == ["GPU-1", "GPU-2"]
    (task,) = json.loads(good("app", "tasks", "train", "--json"))
    assert task["gpuIds"] == ["GPU-1", "GPU-2"]


def _completed(args: list[str], incomplete: str) -> list[str]:
    completer = ShellComplete(main, {}, "mesos-gpu", "_MESOS_GPU_COMPLETE")
    return [item.value for item in completer.get_completions(args, incomplete)]


def test_ids_are_completed(rig: Played) -> None:
    made("/store/web")
    made("/db")
    assert _completed(["app", "show"], "/s") == ["/store/web"]
    assert _completed(["app", "delete", "/db"], "/") == ["/db", "/store/web"]
    assert _completed(["why"], "/d") == ["/db"]
    rig.full()
    (id,) = [json.loads(good("app", "scale", "/db", "2", "--json"))["deploymentId"]]
    assert _completed(["deployment", "stop"], id[:3]) == [id]


def test_the_share_of_an_app_is_listed_and_assigned(rig: Played) -> None:
    rig.full()
    rig.call("PUT", "/v2/apps/half", json={**APP, "gpus": 0.5})
    rig.call("PUT", "/v2/apps/part", json={**APP, "gpus": 1, "labels": {"GPU_SHARE": "0.250"}})
    rig.call("PUT", "/v2/apps/whole", json={**APP, "gpus": 1})
    exact = {"compute_pct": 30, "memory_mib": 100}
    rig.call("PUT", "/v2/apps/exact", json={**APP, "gpus": 2, "gpu": exact})
    rows = [line.split() for line in good("app", "list").splitlines()[1:]]
    assert {row[0]: row[5] for row in rows} == {
        "/exact": "0.6",
        "/half": "0.5",
        "/part": "0.25",
        "/whole": "1",
    }
    assert re.search(r"^gpus +0.25$", good("app", "show", "/part"), re.MULTILINE)
    good("app", "update", "--force", "/half", "gpus=0.125")
    assert rig.call("GET", "/v2/apps/half").json()["app"]["gpus"] == 0.125
    said = bad(65, "app", "update", "--force", "/half", "gpus=1.5")
    assert "for a part of each of several GPUs, set gpu.compute_pct and gpu.memory_mib" in said
