"""What `mesos-gpu run` sends of a request's needs, what it refuses, and how `show` tells them."""

import json

import pytest

from tests.contract.cli.cli_rig import call, why
from tests.doubles.fake_rest import FakeRest


def test_run_sends_what_the_host_and_the_image_give(rest: FakeRest) -> None:
    volumes = ("--volume", "/data:/data:ro", "--volume", "/scratch:out")
    got = call("run", "-d", "--image", "app:1", "--pull", *volumes)
    assert got.exit_code == 0, got.stderr
    asked = rest.posted
    assert asked == {"image": "app:1", "pull": True, "volumes": ["/data:/data:ro", "/scratch:out"]}
    rest.add("app", **asked)
    assert "volumes       /data:/data:ro /scratch:out\n" in call("show", "app").stdout


def test_run_sends_named_volumes_and_show_shows_them(rest: FakeRest) -> None:
    volumes = (
        "--volume",
        "name=data,path=data,size=1.5GiB",
        "--volume",
        "name=old,path=/old,ro",
        "--volume",
        "/a:b",
    )
    got = call("run", "-d", *volumes, "--", "true")
    assert got.exit_code == 0, got.stderr
    asked = rest.posted["volumes"]
    data = {"name": "data", "path": "data", "size": 1536}
    assert asked == [data, {"name": "old", "path": "/old", "read_only": True}, "/a:b"]
    rest.add("app", volumes=[{**data, "size": "1536MiB", "read_only": False}, "/a:b"])
    assert "volumes       name=data,path=data,size=1536MiB /a:b\n" in call("show", "app").stdout


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ("name=data,path=a,b", "'b' is not name=NAME, path=PATH, size=SIZE or ro"),
        ("name=data,path=a,path=b", "'name=data,path=a,path=b' has path twice"),
        ("name=data,path=a,size=10GB", "'10GB' is in decimal units; write 10GiB"),
        ("name=data,path=a,size=", "'' is not a memory size"),
    ],
)
def test_run_refuses_words_that_are_no_named_volume(rest: FakeRest, volume: str, said: str) -> None:
    got = call("run", "-d", "--volume", volume, "--", "true")
    assert got.exit_code == 2
    assert said in " ".join(got.stderr.split())
    assert not rest.asked


REMOVED = {
    "id": "u", "name": "data", "owner": "ann", "user": "", "size_mib": 1, "hostname": "n1", "jobs": [],
    "created_at": 1.0, "used_at": 2.0, "removing": True,
}  # fmt: skip


def test_storage_remove_names_the_host_or_the_jobs_that_use_the_volume(rest: FakeRest) -> None:
    rest.fixed["DELETE /v1/volumes/data"] = (202, REMOVED)
    got = call("storage", "remove", "data", "--user", "ann")
    assert (got.exit_code, got.stdout) == (0, "volume data is being removed from n1\n")
    why = {
        "code": "conflict",
        "message": "1 job that has not ended uses the volume data: j1",
        "remedy": "kill it",
    }
    rest.fixed["DELETE /v1/volumes/data"] = (409, {"error": {**why, "problems": []}})
    got = call("storage", "remove", "data")
    assert got.exit_code == 73
    assert "uses the volume data: j1" in got.stderr
    assert call("storage", "remove", "../data").exit_code == 2


def test_run_sends_where_secrets_are_and_show_shows_that(rest: FakeRest) -> None:
    got = call(
        "run", "-d", "--secret", "HF_TOKEN=team/hf", "--secret", "KEY=team/ssh#key:keys/id", "--", "true"
    )
    assert got.exit_code == 0, got.stderr
    asked = rest.posted["secrets"]
    assert asked == {
        "HF_TOKEN": {"source": "team/hf", "file": None},
        "KEY": {"source": "team/ssh#key", "file": "keys/id"},
    }
    rest.add("hugs", secrets=asked)
    assert "secrets       HF_TOKEN=team/hf 'KEY=team/ssh#key:keys/id'\n" in call("show", "hugs").stdout
    refused = call("run", "-d", "--secret", "HF_TOKEN=hf_aValue!", "--", "true")
    assert refused.exit_code == 2
    assert "hf_aValue" not in refused.stderr, "it may be the secret itself"


def test_run_sends_the_image_secret_and_show_shows_it(rest: FakeRest) -> None:
    got = call("run", "-d", "--image", "reg.example/app", "--image-secret", "team/ngc", "--", "true")
    assert got.exit_code == 0, got.stderr
    assert rest.posted["image_secret"] == "team/ngc"
    rest.add("pulls", image="reg.example/app", image_secret="team/ngc")
    assert "image secret  team/ngc\n" in call("show", "pulls").stdout


def test_run_sends_what_the_sandbox_shall_have(rest: FakeRest) -> None:
    uris = ("http://host/a.tgz", "/b")
    got = call("run", "-d", "--disk", "2GiB", "--fetch", uris[0], "--fetch", uris[1], "--", "true")
    assert got.exit_code == 0, got.stderr
    asked = rest.posted
    assert (asked["disk_mib"], asked["fetch"]) == (2048, list(uris))
    rest.add("files", disk_mib=2048, fetch=uris)
    shown = call("show", "files").stdout
    assert "disk          2048 MiB\n" in shown
    assert "fetched       http://host/a.tgz /b\n" in shown


def test_run_sends_what_gpus_must_have_and_a_gang_and_show_shows_them(rest: FakeRest) -> None:
    needs = ("--gpus", "2", "--gpu-memory", "40g", "--compute-capability", "8.0")
    gang = ("--tasks", "3", "--on-member-failure", "fail", "--preemptible")
    got = call("run", "-d", *needs, *gang, "--", "work")
    assert got.exit_code == 0, got.stderr
    asked = rest.posted
    assert asked == {
        "argv": ["work"],
        "gpus": 2,
        "gpu_memory_mib": 40960,
        "compute_capability": "8.0",
        "tasks": 3,
        "on_member_failure": "fail",
        "preemptible": True,
    }
    rest.add("gang", **asked)
    shown = call("show", "gang").stdout
    assert "gpus          2 with 40960 MiB or more, compute capability 8.0 or newer\n" in shown
    assert "tasks         3, 6 GPUs in total; if one fails, the job fails\n" in shown
    assert "queue         default, priority 0, preemptible\n" in shown


def test_a_whole_number_of_gpus_may_have_zeros_behind_its_point(rest: FakeRest) -> None:
    assert call("run", "-d", "--gpus", "2.0", "--", "work").exit_code == 0
    assert json.dumps(rest.posted["gpus"]) == "2"


def test_run_asks_for_shares_and_show_says_them(rest: FakeRest) -> None:
    of_share = ("--gpus", ".250", "--gpu-memory-max", "8GiB", "--gpu-isolation", "strict", "--tasks", "3")
    got = call("run", "-d", *of_share, "--", "work")
    assert got.exit_code == 0, got.stderr
    asked = rest.posted
    assert asked == {
        "argv": ["work"], "gpus": 0.25, "gpu_memory_max_mib": 8192, "isolation": "strict", "tasks": 3,
    }  # fmt: skip
    rest.add("part", **asked)
    shown = call("show", "part").stdout
    assert "gpus          0.25, up to 8192 MiB while other shares leave it free, isolation strict\n" in shown
    assert "tasks         3, 0.75 GPUs in total; if one fails, all start again\n" in shown
    assert "3x0.25" in call("ps").stdout
    got = call("run", "-d", "--gpu-compute", "30", "--gpu-memory", "20GiB", "--", "work")
    assert got.exit_code == 0, got.stderr
    asked = rest.posted
    assert asked == {"argv": ["work"], "gpu_compute_pct": 30, "gpu_memory_mib": 20480}
    rest.add("exact", **asked, gpus=1)
    assert "gpus          1, 30 % of compute and 20480 MiB of each\n" in call("show", "exact").stdout
    rest.add("both", argv=["work"], gpus=0.25, gpu_compute_pct=40)
    gpus = {
        line.split()[0].rpartition("-")[0]: line.split()[5] for line in call("ps").stdout.splitlines()[1:]
    }
    assert gpus == {"job": "3x0.25", "part": "3x0.25", "exact": "0.3", "both": "0.4"}, "as limits count them"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpus", "1.5"), "'1.5' is not a number of GPUs, such as 0 or 8, or a part of one in thousandths"),
        (("--gpus", "0.2505"), "or a part of one in thousandths, such as 0.25"),
        (("--gpus", "1e-9"), "or a part of one in thousandths, such as 0.25"),
        (("--gpus", "nan"), "or a part of one in thousandths, such as 0.25"),
        (("--gpus", "-0.5"), "or a part of one in thousandths, such as 0.25"),
        (("--gpus", "0.0"), "or a part of one in thousandths, such as 0.25"),
        (("--gpu-compute", "0"), "0 is not in the range 1<=x<=100"),
        (("--gpu-compute", "101"), "101 is not in the range 1<=x<=100"),
        (("--gpu-isolation", "hard"), "'hard' is not one of 'strict', 'shared', 'any'"),
        (("--gpu-memory-max", "4GB"), "'4GB' is in decimal units; write 4GiB"),
        (("--gpus", "one"), "'one' is not a number of GPUs, such as 0 or 8"),
        (("--gpus", "-1"), "'-1' is not a number of GPUs, such as 0 or 8"),
        (("--tasks", "0"), "0 is not in the range 1<=x<=1024"),
        (("--compute-capability", "8"), "'8' is not a compute capability, such as 8.0"),
        (("--gpu-memory", "40GB"), "'40GB' is in decimal units; write 40GiB"),
        (("--on-member-failure", "hope"), "'hope' is not one of 'restart', 'fail'"),
    ],
)
def test_run_refuses_what_no_request_may_ask(rest: FakeRest, words: tuple[str, str], why: str) -> None:
    got = call("run", "-d", *words, "--", "work")
    assert got.exit_code == 2
    assert why in " ".join(got.stderr.split())
    assert not rest.asked


def test_run_sends_what_the_options_say(rest: FakeRest) -> None:
    got = call(
        "run",
        "-d",
        "--name",
        "t",
        "--cpus",
        "0.5",
        "--mem",
        "2GiB",
        "--gpus",
        "2",
        "--gpu-model",
        "B",
        "--gpu-model",
        "A",
        "--env",
        "X=1",
        "--env",
        "Y=",
        "--user",
        "u",
        "--label",
        "k=v",
        "--max-attempts",
        "3",
        "--timeout",
        "2h",
        "python",
        "-c",
        "print(1)",
        "--gpus",
    )
    assert (got.exit_code, got.stdout) == (0, "t-00000000\n")
    assert rest.asked[0] == (
        "POST /v1/jobs",
        {
            "name": "t",
            "cpus": 0.5,
            "mem_mib": 2048,
            "gpus": 2,
            "gpu_model": ["B", "A"],
            "env": {"X": "1", "Y": ""},
            "user": "u",
            "labels": {"k": "v"},
            "max_attempts": 3,
            "timeout_s": 7200,
            "argv": ["python", "-c", "print(1)", "--gpus"],
        },
    )
    call("run", "-d", "--shell", "--", "echo", "a", "|", "cat")
    assert rest.posted == {"command": "echo a | cat"}


def test_show_says_whose_a_job_is_and_whether_that_was_proved(rest: FakeRest) -> None:
    rest.add("mine", owner="ann?")
    assert "owner         ann, not authenticated\n" in call("show", "mine").stdout


def test_run_sends_constraints_and_show_shows_them(rest: FakeRest) -> None:
    rules = ("--constraint", "hostname:unique", "--constraint", "rack:LIKE:a:[1-3]")
    got = call("run", "-d", "--app", "web", *rules, "--near", "db", "--away", "batch", "--", "work")
    assert got.exit_code == 0, got.stderr
    assert rest.posted == {
        "argv": ["work"],
        "app": "web",
        "constraints": [["hostname", "UNIQUE"], ["rack", "LIKE", "a:[1-3]"]],
        "near": "db",
        "away": "batch",
    }
    shown = call("show", got.stdout.strip()).stdout
    assert "constraints   hostname UNIQUE, rack LIKE a:[1-3]\n" in shown
    assert "app           web\n" in shown
    bad = call("run", "-d", "--constraint", "rack:IN:a", "--", "work")
    assert bad.exit_code == 2
    assert "has the unknown operator IN; use one of UNIQUE," in bad.stderr


def test_run_sends_a_limit_of_cpus_and_show_shows_it(rest: FakeRest) -> None:
    got = call("run", "-d", "--cpus", "2", "--cpu-limit", "2.5", "--", "work")
    assert got.exit_code == 0, got.stderr
    assert rest.posted == {"argv": ["work"], "cpus": 2.0, "cpu_limit": 2.5}
    assert "cpu limit     2.5\n" in call("show", got.stdout.strip()).stdout
    bad = call("run", "-d", "--cpu-limit", "0", "--", "work")
    assert bad.exit_code == 2, bad.stderr


def test_run_sends_a_level_and_show_shows_it(rest: FakeRest) -> None:
    got = call("run", "-d", "--tasks", "8", "--topology", "preferred:rack", "--segment", "4", "--", "work")
    assert got.exit_code == 0, got.stderr
    assert rest.posted == {"argv": ["work"], "tasks": 8, "topology": {"preferred": "rack"}, "segment": 4}
    shown = call("show", got.stdout.strip()).stdout
    assert "topology      preferred rack\n" in shown
    assert "segment       4\n" in shown
    bad = call("run", "-d", "--topology", "rack", "--", "work")
    assert bad.exit_code == 2
    assert "'rack' is neither required:LEVEL nor preferred:LEVEL, for example required:rack" in bad.stderr


@pytest.mark.parametrize("able", [True, False])
def test_a_job_that_can_never_run_is_told_of_when_it_is_submitted(rest: FakeRest, able: bool) -> None:
    for id in ("job-00000000", "big-00000001"):
        said = {**why(id), "can_ever_run": able, "summary": "no node has 9 GPUs"}
        rest.fixed[f"GET /v1/why/{id}"] = (200, said)
    warned = "mesos-gpu: {} can never run on the current nodes: no node has 9 GPUs\n"
    got = call("run", "-d", "--gpus", "9", "--", "true")
    assert (got.exit_code, got.stdout) == (0, "job-00000000\n")
    assert got.stderr == ("" if able else warned.format("job-00000000"))
    got = call("submit", "-", stdin='{"name": "big", "command": "x", "gpus": 9}')
    assert (got.exit_code, got.stdout) == (0, "big-00000001\n")
    assert got.stderr == ("" if able else warned.format("big-00000001"))


def test_a_scheduler_that_does_not_say_why_spoils_no_submission(rest: FakeRest) -> None:
    got = call("run", "-d", "--", "true")
    assert (got.exit_code, got.stderr) == (0, "")
