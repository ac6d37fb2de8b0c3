"""Plans of an upgrade, from the answer of the scheduler and the new program."""

from typing import Any

import click
import pytest

from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.spec.cluster.upgrade import Flag, Upgrade
from mesos_gpu.cli.upgrade.plan import Plan, Program, Release, plan_of
from mesos_gpu.scheduler.__main__ import scheduler
from mesos_gpu.scheduler.options.cluster.flags import flags_of

NOW: Release = {"version": "0.1.0", "wire": 2, "oldest": 1, "schema": 12}
NEXT: Release = {"version": "0.2.0", "wire": 3, "oldest": 2, "schema": 13}
OURS = {"version": "0.1.0", "wire": 2, "oldest": 1, "digest": "ab" * 32}


def node(hostname: str, program: Any = OURS, **more: Any) -> Any:
    said = {"outdated": None, "unfit": None, "replaced_now": False, "problem": None, **more}
    return {"hostname": hostname, "agent_id": hostname, "program": program, **said}


def flag(name: str, default: str | None = None, *, given: bool = False) -> Flag:
    return {"name": name, "given": given, "default": default}


def told(**more: Any) -> Upgrade:
    return {**NOW, "nodes": [], "replaced": 0, "executors": [], "flags": [flag("--port", "8080")], **more}  # type: ignore[typeddict-item]


def made(
    said: Upgrade | None, release: Release = NEXT, digest: str = "", *flags: Flag, lead: Any = None
) -> Plan:
    return plan_of(said, "0.1.0", lead, Program(release, flags or (flag("--port", "8080"),), digest))


def test_upgrade_plan_without_differences_has_no_steps() -> None:
    plan = made(told(nodes=[node("h1")]), NOW)
    assert (plan["needed"], plan["steps"], plan["in_the_way"], plan["cannot_be_undone"]) == (
        False,
        [],
        [],
        [],
    )


def test_upgrade_plan_replaces_monitors_of_another_release() -> None:
    plan = made(told(nodes=[node("h1"), node("h2", None), node("h3", outdated="other settings")]))
    assert [(each["hostname"], each["why"]) for each in plan["monitors"]] == [
        ("h1", "it is of release 0.1.0, wires 1 to 2"),
        ("h2", "it does not report its release"),
        ("h3", "other settings"),
    ]
    assert "replace 3 node monitors: one, then" in plan["steps"][-1]["what"]


def test_upgrade_plan_of_an_archive_replaces_monitors_of_another() -> None:
    other = OURS | {"digest": "cd" * 32}
    plan = made(told(nodes=[node("h1"), node("h2", other)]), NOW, "ab" * 32)
    assert [each["hostname"] for each in plan["monitors"]] == ["h2"]
    assert plan["needed"]


def test_upgrade_plan_has_standbys_first_and_the_leader_last() -> None:
    schedulers = [
        {"url": f"http://{name}:5000", "leads": name == "a", "here": False, "applied": 1} for name in "abc"
    ]
    lead: Leadership = {"leader": "http://a:5000", "here": "http://a:5000", "leads": True, "age_s": None, "batch": 1,
                        "candidates": 3, "schedulers": schedulers, "zookeeper": None}  # type: ignore[typeddict-item]  # fmt: skip
    steps = [each["what"] for each in made(told(), lead=lead)["steps"]]
    places = [next(i for i, step in enumerate(steps) if f"http://{name}:" in step) for name in "bca"]
    assert places == sorted(places)
    assert "as the last one" in steps[places[-1]]
    assert "mesos-gpu backup" in steps[0]


def test_upgrade_plan_copies_the_state_before_a_newer_schema() -> None:
    plan = made(told())
    assert any(
        "from schema 12 to 13; a copy is made first, FILE.before-v13" in each["what"]
        for each in plan["steps"]
    )
    assert "an earlier release refuses it" in plan["cannot_be_undone"][0]


def test_upgrade_plan_is_blocked_by_a_state_of_a_newer_program() -> None:
    older: Release = {**NOW, "schema": 11}
    assert "schema 12, but this program knows at most 11" in made(told(), older)["in_the_way"][0]


def test_upgrade_plan_is_blocked_by_executors_that_are_too_old() -> None:
    kinds = [
        {"version": None, "wire": 1, "tasks": 3, "unlimited": 1, "last_ends_at": 5.0},
        {"version": "0.1.0", "wire": 2, "tasks": 1, "unlimited": 0, "last_ends_at": 5.0},
    ]
    plan = made(told(executors=kinds))
    assert len(plan["in_the_way"]) == 1
    assert (
        "3 tasks run in executors with wire 1, but this program supports wires 2 to 3"
        in plan["in_the_way"][0]
    )
    assert plan["executors"] == [
        "3 tasks run in executors of an unknown release, wire 1; 1 of them without a time limit",
        "1 task run in executors of release 0.1.0, wire 2; all of them have a time limit",
    ]


def test_upgrade_plan_is_blocked_by_an_unfinished_replacement() -> None:
    plan = made(told(nodes=[node("h1", problem="no new monitor runs there")]))
    assert plan["in_the_way"] == [
        "the monitor of h1 is being replaced, with a problem: no new monitor runs there"
    ]


def test_upgrade_plan_is_blocked_by_options_that_are_gone() -> None:
    said = told(
        flags=[
            flag("--old", given=True),
            flag("--gone"),
            flag("--port", "8080"),
            flag("--set", "1", given=True),
        ]
    )
    plan = made(said, NEXT, "", flag("--port", "5001"), flag("--set", "2"), flag("--new"))
    assert plan["in_the_way"] == [
        "the scheduler was started with --old, which this program does not know: remove it"
    ]
    assert plan["defaults"] == [{"name": "--port", "was": "8080", "will_be": "5001"}]
    assert plan["new_options"] == ["--new"]


def test_upgrade_plan_replaces_all_monitors_of_a_silent_release() -> None:
    plan = made(None)
    assert plan["running"] == {"version": "0.1.0", "wire": 1, "oldest": 1, "schema": None}
    assert "replace all node monitors" in plan["steps"][-1]["what"]
    assert any("from an earlier schema to 13" in each["what"] for each in plan["steps"])


@pytest.mark.parametrize("words", [[], ["--port", "1234"]])
def test_scheduler_options_are_listed_without_their_values(words: list[str]) -> None:
    master = ["--master", "m:5050", "--state", "/s"]
    context = scheduler.make_context("scheduler", [*master, *words])
    flags = {each["name"]: each for each in flags_of(scheduler, context)}
    assert flags["--port"] == flag("--port", "8080", given=bool(words))
    assert flags["--master"]["given"]
    assert "m:5050" not in str(flags)
    assert not any(each["given"] for each in flags_of(scheduler))
    assert len(flags) == sum(isinstance(each, click.Option) for each in scheduler.params)
