"""Constraints: Marathon's seven operators with Marathon's own cases, and how the engine keeps them."""

from collections import Counter
from dataclasses import replace
from typing import Any

import click
import pytest

from mesos_gpu.cli.types import CONSTRAINT, TOPOLOGY
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.state import State
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, scalar_text
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.pattern import matches, problem_of
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.policy.apps.workload import job_of
from mesos_gpu.policy.cluster.constraints import Placed, violated
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.constraints import constraint_of
from mesos_gpu.wire.job_fields import write
from mesos_gpu.wire.jobs import spec_from_mapping
from mesos_gpu.wire.marathon.app import app_of, app_to_json
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.marathon.problems import Problems
from mesos_gpu.wire.mesos.v1 import offer_from_json
from tests.doubles.builders import World, gpu, offer, saved_of, spec


def node(text: str) -> Node:
    """`host@region/zone name:value;…`; all but the host may be left out."""
    place, _, attributes = text.partition(" ")
    hostname, _, domain = place.partition("@")
    region, _, zone = domain.partition("/")
    pairs = dict(pair.split(":") for pair in attributes.split(";") if pair)
    return Node(AgentId(hostname), hostname, attributes=pairs, region=region or None, zone=zone or None)


def request(**fields: object) -> JobSpec | list[Problem]:
    return spec_from_mapping({"command": "true", **fields})


def meets(rule: str, where: str, *placed: str, instances: int = 1) -> bool:
    constraint = constraint_of(rule.split(" "))
    assert isinstance(constraint, Constraint), constraint
    others = [Placed(f"job-{i}", node(text)) for i, text in enumerate(placed, 1)]
    return not violated(constraint, node(where), others, instances)


# From Marathon's ConstraintsTest: rule, offer, what is placed, whether it fits.
MARATHON: list[tuple[str, str, list[str], bool]] = [
    ("@hostname CLUSTER", "foohost", [], True),
    ("@hostname CLUSTER right.com", "wrong.com", [], False),
    ("@hostname UNIQUE", "host2", [], True),
    ("@hostname UNIQUE", "host4", ["host1", "host2", "host3"], True),
    ("@hostname UNIQUE", "host2", ["host1", "host2", "host3"], False),
    ("rackid CLUSTER", "foohost foo:bar;rackid:rack-1", [], True),
    ("rackid CLUSTER", "foohost rackid:rack-1", ["h rackid:rack-1", "h rackid:rack-1"], True),
    ("rackid CLUSTER", "foohost rackid:rack-2", ["h rackid:rack-1", "h rackid:rack-1"], False),
    ("rackid CLUSTER", "foohost", [], False),
    ("rackid UNIQUE", "foohost rackid:rack-1", [], True),
    ("rackid UNIQUE", "foohost rackid:rack-3", ["h rackid:rack-1", "h rackid:rack-2"], True),
    ("rackid UNIQUE", "foohost rackid:rack-1", ["h rackid:rack-1", "h rackid:rack-2"], False),
    ("rackid UNIQUE", "foohost", [], False),
    ("jdk LIKE 7", "foohost jdk:6", [], False),
    ("jdk LIKE 7", "foohost jdk:7", [], True),
    ("jdk LIKE 7", "foohost jdk:77", [], False),  # anchored at both ends
    ("jdk LIKE 7", "foohost", [], False),
    ("jdk UNLIKE 7", "foohost jdk:6", [], True),
    ("jdk UNLIKE 7", "foohost jdk:7", [], False),
    ("jdk UNLIKE 7", "foohost", [], True),
    ("@hostname MAX_PER 2", "host1", [], True),
    ("@hostname MAX_PER 2", "host1", ["host1"], True),
    ("@hostname MAX_PER 2", "host2", ["host1", "host1"], True),
    ("@hostname MAX_PER 2", "host1", ["host1", "host1", "host2"], False),
    ("@hostname MAX_PER 2", "host3", ["host1", "host1", "host2"], True),
    ("rackid MAX_PER 2", "foohost rackid:1", ["h rackid:1", "h rackid:2"], True),
    ("rackid MAX_PER 2", "foohost rackid:1", ["h rackid:1", "h rackid:2", "h rackid:1"], False),
    ("rackid MAX_PER 2", "foohost", [], False),
    ("jdk CLUSTER 7", "foohost jdk:6", ["h jdk:7"], False),
    ("jdk CLUSTER 7", "foohost jdk:7", ["h jdk:7"], True),
    ("jdk CLUSTER 7", "foohost jdk:7", ["h jdk:6"], True),  # with a value, what is placed is of no meaning
    (r"jdk LIKE \[6-7\]", "foohost jdk:[5-7]", [], False),
    (r"jdk LIKE \[6-7\]", "foohost jdk:[6-7]", [], True),
    (r"jdk UNLIKE \[6-7\]", "foohost jdk:[6-7]", [], False),
    (r"jdk UNLIKE \[6-7\]", "foohost jdk:5-7", [], True),
    (r"jdk UNLIKE \[6-7\]", "foohost", [], True),
    ("jdk CLUSTER [6-7]", "foohost jdk:[5-7]", [], False),
    ("jdk CLUSTER [6-7]", "foohost jdk:[6-7]", [], True),
    (r"gpu LIKE \{0,1\}", "foohost gpu:{1,2}", [], False),
    (r"gpu LIKE \{0,1\}", "foohost gpu:{0,1}", [], True),
    ("gpu CLUSTER {0,1}", "foohost gpu:{0,1}", [], True),
    ("@region UNIQUE", "h@region1/zone", ["h@region1/zone1"], False),
    ("@region UNIQUE", "h@region2/zone", ["h@region1/zone1"], True),
    ("@zone UNIQUE", "h@region/zone1", ["h@region/zone1"], False),
    ("@zone UNIQUE", "h@region/zone2", ["h@region/zone1"], True),
    ("@zone IS zone1", "h", [], False),
    ("@hostname IS righthost.com", "righthost.com", [], True),
    ("hostname IS righthost.com", "wronghost.com", [], False),
    ("number IS 1.0", "host number:1", [], True),
    ("number IS 1", "host number:1", [], True),
    ("number IS 1.0001", "host number:1", [], True),
    ("number IS 1.0005", "host number:1", [], True),
    ("number IS 1.00051", "host number:1", [], False),
    ("number IS 1.001", "host number:1", [], False),
]


def test_constraints_of_marathons_own_cases() -> None:
    wrong = [
        case
        for case in MARATHON
        for rule, offer, placed, fits in [case]
        if meets(rule, offer, *placed) is not fits
    ]
    assert not wrong


# Five jobs over groups, again Marathon's; the racks of what is placed, the rack offered.
GROUPS: list[tuple[str, list[int], int, bool]] = [
    ("2", [], 1, True),
    ("2", [1, 1], 1, True),
    ("4", [1], 1, True),
    ("2", [1, 1, 1], 1, False),
    ("4", [1, 1], 1, False),
    ("2", [1], 2, True),
    ("4", [1, 1, 2], 2, False),
    ("2", [1, 1, 1, 2], 2, True),
    ("2", [1, 2], 3, False),
    ("3", [], 1, True),
    ("3", [1], 2, True),
    ("3", [1, 2], 3, True),
    ("3", [1], 1, True),
]


@pytest.mark.parametrize("field", ["rack", "hostname", "@zone"])
def test_groups_of_a_number(field: str) -> None:
    def at(n: int) -> str:
        return f"{n}@r/{n} rack:{n}"

    for number, placed, rack, fits in GROUPS:
        others = [at(n) for n in placed]
        case = number, placed, rack
        assert meets(f"{field} GROUP_BY {number}", at(rack), *others, instances=5) is fits, case
        assert not meets(f"other GROUP_BY {number}", at(rack), *others, instances=5), case


@pytest.mark.parametrize("placed", [[], [1], [1, 2], [1, 1, 2], [1, 1, 1]])
def test_groups_without_a_number_refuse_no_node_with_the_field(placed: list[int]) -> None:
    others = [f"h rack:{n}" for n in placed]
    assert all(meets("rack GROUP_BY", f"h rack:{rack}", *others, instances=9) for rack in (1, 2))
    assert not meets("rack GROUP_BY", "h zone:1", *others, instances=9)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (1.5, "1.5"), (1.0005, "1"), (1.1005, "1.101"), (1e6, "1000000"), (0.0, "0"), (10, "10")],
)
def test_scalars_as_text(value: float, text: str) -> None:
    assert scalar_text(value) == text


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("rack-[1-3]", "rack-2", True),
        ("rack-[1-3]", "rack-22", False),
        ("^rack.*$", "rack-22", True),
        ("^a|b$", "b", True),
        ("(?i)RACK", "rack", True),
        ("(?<name>a)b", "ab", True),
        ("a|", "", True),
        (r"\$", "$", True),
        (".", "\u2028", False),
        (r"\d", "٣", False),  # Java's \d is ASCII
        (r"[\d.]+", "10.0", True),
        ("x{2,3}", "xxxx", False),
    ],
)
def test_patterns_are_those_of_java(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


def test_patterns_that_are_refused() -> None:
    patterns = [
        "(", ")", "a)", "[a", "[a[b]]", "[a&&b]", "*a", "a**", "a*+", "a{x", "a{3,1}", r"\p{L}", r"\1", "\\", "a^b",
        "a$b", "(?=a)", "(?i:a)", "[z-a]", "(((a{99}){99}){99})", "(" * 60 + ")" * 60, "(){999}{999}", "((){999}){999}",
    ]  # fmt: skip
    assert [pattern for pattern in patterns if not problem_of(pattern).startswith("it ")] == []


def test_constraint_patterns_take_no_long_time() -> None:
    """By going back and forth none of these comparisons would end within the time limit of a test."""
    for pattern in ("(a+)+!", "(a|a)*!", "(.*a){20}", ".*.*.*.*.*.*.*.*!"):
        assert matches(pattern, "a" * 250) is (pattern == "(.*a){20}")


# --- wire


def test_attributes_have_marathons_text() -> None:
    offer: dict[str, Any] = {
        "id": {"value": "o"},
        "agent_id": {"value": "a"},
        "hostname": "h",
        "attributes": [
            {"name": "text", "type": "TEXT", "text": {"value": "A 1.0"}},
            {"name": "text", "type": "TEXT", "text": {"value": "the second of a name"}},
            {"name": "scalar", "type": "SCALAR", "scalar": {"value": 1234567.5}},
            {
                "name": "ranges",
                "type": "RANGES",
                "ranges": {"range": [{"begin": 7, "end": 9}, {"begin": 1, "end": 3}]},
            },
            {"name": "set", "type": "SET", "set": {"item": ["b", "a"]}},
        ],
        "domain": {"fault_domain": {"region": {"name": "eu"}, "zone": {"name": "eu-1"}}},
    }
    parsed = offer_from_json(offer, 0.0)
    expected = {"text": "A 1.0", "scalar": "1234567.5", "ranges": "[1-3,7-9]", "set": "{a,b}"}
    assert (dict(parsed.attributes), parsed.region, parsed.zone) == (expected, "eu", "eu-1")
    del offer["domain"]
    parsed = offer_from_json(offer, 0.0)
    assert (parsed.region, parsed.zone) == (None, None)


def test_constraints_that_are_valid_are_taken() -> None:
    spec = request(
        app="web",
        constraints=[["hostname", "unique"], ["rack", "GROUP_BY", 3], ["disk", "IS", 1.5], ["a", "CLUSTER"]],
        near="db",
        away="batch",
    )
    assert isinstance(spec, JobSpec)
    assert (spec.app, spec.near, spec.away) == ("web", "db", "batch")
    assert [c.as_list() for c in spec.constraints] == [
        ["hostname", "UNIQUE"],
        ["rack", "GROUP_BY", "3"],
        ["disk", "IS", "1.5"],
        ["a", "CLUSTER"],
    ]


BAD: list[tuple[object, str]] = [
    ("hostname:UNIQUE", "must be [field, operator] or [field, operator, value]"),
    (["hostname"], "must be [field, operator]"),
    (["a", "LIKE", "b", "c"], "must be [field, operator]"),
    (["a", "LIKE", True], "must be [field, operator]"),
    (["a", "LIKE", "x" * 300], "up to 256 characters"),
    (["", "LIKE", "a"], "the field is empty"),
    (
        ["a", "IN", "b"],
        ("has the unknown operator IN; use one of UNIQUE, CLUSTER, GROUP_BY, LIKE, UNLIKE, MAX_PER, IS"),
    ),
    (["hostname", "UNIQUE", "x"], "UNIQUE has no value; leave it out"),
    (["a", "MAX_PER"], "MAX_PER needs the number of jobs"),
    (["a", "MAX_PER", "two"], "MAX_PER needs the number of jobs"),
    (["a", "GROUP_BY", "0"], "GROUP_BY needs the number of values"),
    (["a", "LIKE"], "LIKE needs a regular expression, as rack-[1-3]: the value is missing"),
    (["a", "UNLIKE", "("], "UNLIKE needs a regular expression, as rack-[1-3]: it has a ( too many"),
    (["a", "IS", "{a,b}"], "use LIKE"),
]


def test_constraint_refusal_names_all_faults() -> None:
    problems = request(app="web", constraints=[constraint for constraint, _ in BAD])
    assert isinstance(problems, list)
    assert [problem.path for problem in problems] == [f"/constraints/{i}" for i in range(len(BAD))]
    for problem, (_, words) in zip(problems, BAD, strict=True):
        assert words in problem.reason
        assert "; got " in problem.reason


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"constraints": [["hostname", "UNIQUE"]]}, "/constraints/0", "this job has no app; set app"),
        ({"constraints": [["rack", "CLUSTER"]]}, "/constraints/0", "set app"),
        ({"constraints": {"rack": "LIKE"}}, "/constraints", "a list of at most 16"),
        ({"constraints": [["a", "LIKE", "b"]] * 33}, "/constraints", "a list of at most 16"),
        ({"app": "Web"}, "/app", "the name of an app"),
        ({"near": "a", "away": "a"}, "/away", "leave one out"),
        ({"topology": {}}, "/topology", 'must be {"required": LEVEL} or {"preferred": LEVEL}, got {}'),
        ({"topology": "rack"}, "/topology", 'must be {"required": LEVEL}'),
        ({"topology": {"required": "a", "preferred": "b"}}, "/topology", 'must be {"required": LEVEL}'),
        ({"topology": {"wanted": "rack"}}, "/topology", 'must be {"required": LEVEL}'),
        ({"topology": {"required": "a b"}}, "/topology", "must have the name of a level"),
        ({"topology": {"required": 3}}, "/topology", "must have the name of a level"),
        ({"segment": 2, "tasks": 4}, "/segment", 'needs topology, as {"required": "rack"}'),
        (
            {"segment": 0, "tasks": 4, "topology": {"required": "rack"}},
            "/segment",
            "an integer from 1 to 1024",
        ),
        (
            {"segment": 3, "tasks": 4, "topology": {"required": "rack"}},
            "/segment",
            "must divide tasks, which is 4, got 3",
        ),
    ],
)
def test_constraint_refusal_names_the_field(fields: dict[str, object], path: str, words: str) -> None:
    problems = request(**fields)
    assert isinstance(problems, list)
    assert [problem.path for problem in problems] == [path]
    assert words in problems[0].reason


def test_topology_of_a_request_is_read_and_written() -> None:
    for asked in ({"required": "rack"}, {"preferred": "block", "required": None}):
        spec = request(topology=asked, segment=2, tasks=4)
        assert isinstance(spec, JobSpec), spec
        assert write(spec)["topology"] == {key: level for key, level in asked.items() if level}
        assert write(spec)["segment"] == 2
    spec = request()
    assert isinstance(spec, JobSpec), spec
    assert write(spec)["topology"] is None


def test_topology_of_the_command_line_is_an_object_of_a_request() -> None:
    assert TOPOLOGY.convert("required:rack", None, None) == {"required": "rack"}
    for text in ("rack", "required", "required:", "wanted:rack"):
        with pytest.raises(click.BadParameter, match="is neither required:LEVEL nor preferred:LEVEL"):
            TOPOLOGY.convert(text, None, None)


def test_topology_of_an_app_is_passed_on_to_its_instances() -> None:
    app = app_of({"id": "/a", "cmd": "sleep 1", "gpu": {"topology": {"required": "rack"}}})
    assert isinstance(app, App), app
    assert app.gpu is not None
    job = job_of(app, app.gpu, version="1")
    assert isinstance(job, JobSpec), job
    assert str(job.topology) == "required:rack"
    written: Any = app_to_json(app)
    assert written["gpu"]["topology"] == {"required": "rack"}
    labels = {"MESOS_GPU_TOPOLOGY": "preferred:rack"}
    by_label = app_of({"id": "/a", "cmd": "sleep 1", "labels": labels})
    assert isinstance(by_label, App), by_label
    job = job_of(by_label, gpu_options(by_label), version="1")
    assert isinstance(job, JobSpec), job
    assert str(job.topology) == "preferred:rack"
    problems = app_of({"id": "/a", "cmd": "sleep 1", "gpu": {"topology": "rack"}})
    assert isinstance(problems, Problems)
    assert [each["path"] for each in problems.as_json()["details"]] == ["/gpu/topology"]


def test_constraints_of_the_command_line_are_taken_and_shown() -> None:
    assert CONSTRAINT.convert("rack:like:a:b", None, None) == ["rack", "LIKE", "a:b"]
    with pytest.raises(click.BadParameter, match="has the unknown operator IN"):
        CONSTRAINT.convert("rack:IN:a", None, None)


# --- engine


@pytest.fixture
def world() -> World:
    """Three agents without GPUs: east twice, west once."""
    world = World()
    world.register()
    zones = {"a1": "east", "a2": "east", "a3": "west"}
    world.offers(
        *(replace(offer(f"o-{a}", a), zone=zone, attributes={"rack": a}) for a, zone in zones.items())
    )
    return world


def submit(world: World, *names: str, **fields: object) -> list[str]:
    """Submit jobs in one match and return their agents; "-" for a job that waits."""
    asked = {"constraints": rules(fields.pop("constraints", "")), "cpus": 0.5, "mem_mib": 64, **fields}
    world.feed(*(ev.JobSubmitted(JobId(name), spec(**asked)) for name in names))
    return [where(world, name) for name in names]


def rules(text: object) -> tuple[Constraint, ...]:
    parsed = [constraint_of(rule.split(" ")) for rule in str(text).split(";") if rule]
    return tuple(rule for rule in parsed if isinstance(rule, Constraint))


def where(world: World, name: str) -> str:
    job = world.job(name)
    return str(world.state.work.tasks[job.task_id].agent_id) if job.task_id else "-"


def again(world: World) -> None:
    """Offer again what is left of each agent."""
    world.serial += 1
    world.offers(*(
        replace(offer(f"n{world.serial}-{node.id}", node.id), zone=node.zone, attributes=node.attributes)
        for node in list(world.state.cluster.nodes.values())
    ))  # fmt: skip


def test_launches_of_one_match_see_each_other(world: World) -> None:
    agents = submit(world, "j1", "j2", "j3", "j4", app="web", constraints="hostname UNIQUE")
    assert sorted(agents) == ["-", "a1", "a2", "a3"]


def test_launches_before_any_update_are_seen_by_later_matches(world: World) -> None:
    submit(world, "j1", "j2", app="web", constraints="hostname UNIQUE")
    again(world)
    third, fourth = submit(world, "j3", "j4", app="web", constraints="hostname UNIQUE")
    assert {where(world, name) for name in ("j1", "j2", "j3")} == {"a1", "a2", "a3"}
    assert (third != "-", fourth) == (True, "-")


def test_constraint_counts_no_task_that_has_ended(world: World) -> None:
    submit(world, "j1", "j2", "j3", "j4", app="web", constraints="hostname UNIQUE")
    agent = where(world, "j2")
    world.status("j2.1", "TASK_FINISHED", agent=agent, outcome=Outcome(exit_status=0))
    again(world)
    assert where(world, "j4") == agent


def test_constraint_counts_no_launch_that_was_given_up(world: World) -> None:
    submit(world, "j1", app="web", constraints="rack IS a1;hostname UNIQUE")
    world.feed(ev.AgentLost(AgentId("a1")))
    submit(world, "j2", app="web", constraints="hostname UNIQUE")
    assert where(world, "j2") in ("a2", "a3")


def test_constraints_hold_over_a_restart(world: World) -> None:
    submit(world, "j1", app="web", constraints="@zone UNIQUE")
    kept = State.restored(world.now, saved_of(world.state))
    after = World(state=kept, now=world.now)
    after.register()
    assert {node.zone for node in kept.cluster.nodes.values()} == {"east", "west"}
    again(after)
    assert {submit(after, "j2", app="web", constraints="@zone UNIQUE")[0], where(after, "j1")} > {"a3"}
    assert submit(after, "j3", app="web", constraints="@zone UNIQUE") == ["-"]


@pytest.mark.parametrize(
    ("constraints", "count", "counts"),
    [
        ("rack MAX_PER 2", 7, [2, 2, 2]),
        ("rack GROUP_BY 3", 6, [2, 2, 2]),
        ("rack GROUP_BY", 5, [1, 2, 2]),
        ("hostname GROUP_BY", 4, [1, 1, 2]),
        ("@zone GROUP_BY 2", 4, [2, 2]),
        ("rack GROUP_BY 2", 4, [2, 2]),
        ("rack CLUSTER", 3, [3]),
        ("rack UNLIKE a[12]", 3, [3]),
        ("rack UNIQUE;@zone IS east", 3, [1, 1]),
        ("none IS 1", 1, []),
    ],
)
def test_apps_over_a_cluster(world: World, constraints: str, count: int, counts: list[int]) -> None:
    by_agent = Counter(submit(world, *(f"j{i}" for i in range(count)), app="web", constraints=constraints))
    assert by_agent.pop("-", 0) == count - sum(counts)
    zones = Counter({"east": by_agent["a1"] + by_agent["a2"], "west": by_agent["a3"]})
    by_value = zones if constraints.startswith("@zone GROUP") else by_agent
    assert sorted(n for n in by_value.values() if n) == counts


def test_constraints_near_and_away_from_jobs(world: World) -> None:
    assert submit(world, "c1", near="db") == ["-"]
    (home,) = submit(world, "d1", app="db")
    again(world)
    assert where(world, "c1") == home
    assert home not in submit(world, "b1", "b2", app="batch", away="db")
    others = "|".join({where(world, "b1"), where(world, "b2")})
    submit(world, "d2", app="db", constraints=f"rack LIKE {others}")
    submit(world, "d3", app="db", near="db")
    again(world)
    assert (where(world, "d2"), where(world, "d3")) == ("-", home)  # what is to be away from db keeps db off


def test_constrained_job_refuses_nothing_in_the_name_of_others(world: World) -> None:
    submit(world, "j1", constraints="rack IS a9")
    assert submit(world, "j2") != ["-"]


# --- why


def test_explanation_names_the_constraint_that_a_node_violates(world: World) -> None:
    submit(world, "j1", "j2", "j3", "j4", app="web", constraints="hostname UNIQUE")
    why = explain_job(View(world.state, world.settings, world.now), JobId("j4"))
    assert why.can_ever_run
    name = next(n for n in ("j1", "j2", "j3") if where(world, n) == "a2")
    reasons = {node.hostname: node.reasons for node in why.nodes}
    assert reasons["a2.example"][0] == f"violates constraint hostname UNIQUE: {name} runs here"
    assert "nearest is a1.example, which violates constraint hostname UNIQUE" in why.summary


@pytest.mark.parametrize(
    ("fields", "summary"),
    [
        ({"constraints": "rack LIKE b.*"}, "a1.example violates constraint rack LIKE b.*: rack is a1"),
        ({"constraints": "@region IS eu"}, "a1.example violates constraint @region IS eu: it has no @region"),
        (
            {"constraints": "gpu GROUP_BY 2", "app": "web"},
            "a1.example violates constraint gpu GROUP_BY 2: it has no gpu",
        ),
    ],
)
def test_explanation_reports_constraints_that_no_node_meets(
    world: World, fields: dict[str, object], summary: str
) -> None:
    submit(world, "j1", **fields)
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    assert (why.can_ever_run, why.summary) == (False, f"no node meets its constraints; {summary}")
    assert why.estimate is not None
    assert why.estimate.at is None


def test_gpus_count_only_where_constraints_let_it(world: World) -> None:
    world.node("a4", gpu("g1"), gpu("g2"))
    submit(world, "j1", gpus=1, constraints="rack LIKE a[1-3]")
    why = explain_job(View(world.state, world.settings, world.now), JobId("j1"))
    assert (why.can_ever_run, why.summary) == (False, "asks for 1 GPU, and no node reports any")


@pytest.mark.parametrize(
    ("rule", "where_", "others", "words"),
    [
        ("rack MAX_PER 2", "a rack:1", ["b rack:1", "c rack:1"], "job-1, job-2 run where rack is 1"),
        (
            "rack MAX_PER 1",
            "a rack:1",
            ["b rack:1"] * 5,
            "job-1, job-2, job-3 and 2 more run where rack is 1",
        ),
        ("rack CLUSTER", "a rack:2", ["b rack:1"], "job-1 runs where rack is 1"),
        ("rack GROUP_BY 1", "a rack:2", ["b rack:1"], "the app has its 1 groups already"),
        (
            "rack GROUP_BY 2",
            "a rack:1",
            ["b rack:1"],
            "1 of the app's 2 run there, which is its share of 2 groups",
        ),
    ],
)
def test_explanation_names_every_reason_of_a_node(
    rule: str, where_: str, others: list[str], words: str
) -> None:
    constraint = constraint_of(rule.split(" "))
    assert isinstance(constraint, Constraint)
    placed = [Placed(f"job-{i}", node(text)) for i, text in enumerate(others, 1)]
    assert violated(constraint, node(where_), placed, 2) == words
