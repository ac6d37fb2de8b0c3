"""Templates: Marathon takes each as it is, each parameter counts, and the commands are those of the tools."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.adapters.files.templates import load, load_all, names
from mesos_gpu.errors import Damaged
from mesos_gpu.model.apps.app import App, EngineType, Group
from mesos_gpu.scheduler.__main__ import scheduler
from mesos_gpu.wire.marathon.app import app_of
from mesos_gpu.wire.marathon.group import group_of
from mesos_gpu.wire.marathon.problems import Detail, Problems
from mesos_gpu.wire.marathon.template import Parameter, Template, WrongValues, render, template_of

ROOT = Path(__file__).parents[4]
SCHEMA = json.loads((ROOT / "tests/data/marathon/App-1.11.schema.json").read_text())
NAMES = names()
PARAMETERS = [(name, each) for name in NAMES for each in load(name).parameters]
# What is no other value of its type for every parameter, by the parameter's name.
OTHER = {"id": "/other/name", "minimum_health": "0.25", "least": "2", "models": "A100,H100"}
BY_KIND = {"string": "/other", "integer": "7", "number": "3.5", "list": "A100, H100"}


def _needed(template: Template) -> dict[str, str]:
    return {each.name: str(each.default) for each in template.parameters if each.required}


def _apps(document: dict[str, Any]) -> list[dict[str, Any]]:
    apps: list[dict[str, Any]] = document.get("apps", [document])
    return apps


def _meant(document: dict[str, Any]) -> App | Group:
    meant = group_of(document) if "apps" in document else app_of(document)
    assert isinstance(meant, App | Group), meant
    return meant


def test_templates_exist_for_each_use() -> None:
    assert NAMES == [
        "gpu-burn",
        "jupyter",
        "mesos-gpu-scheduler",
        "node-exporter",
        "pytorch-train",
        "tensorflow-train",
        "torch-distributed",
        "triton",
        "vllm",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_template_file_is_a_valid_app_as_it_is(name: str) -> None:
    document = json.loads((ROOT / "marathon_templates" / f"{name}.json").read_text())
    for app in _apps(document):
        jsonschema.validate(app, SCHEMA)
    template = load(name)
    assert _meant(document) == _meant(render(template, _needed(template))), "`template` is ignored"
    assert "template" not in render(template, _needed(template))


@pytest.mark.parametrize("name", NAMES)
def test_template_would_get_gpus_of_marathon_itself(name: str) -> None:
    """Marathon refuses GPUs with the container type DOCKER, and overlooks what only mesos_gpu knows."""
    template = load(name)
    for app in _apps(dict(template.document)):
        assert "gpu" not in app, "what only mesos_gpu knows comes with a parameter"
        strategy = app["upgradeStrategy"]
        assert strategy["maximumOverCapacity"] == 0, "no GPU is spare"
        if "container" in app:
            assert app["container"]["type"] == EngineType.MESOS.value
            assert app["container"]["docker"]["image"].rpartition(":")[2] not in ("", "latest")


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS, ids=lambda p: getattr(p, "name", p))
def test_template_parameter_changes_the_app(name: str, parameter: Parameter) -> None:
    template = load(name)
    plain = render(template, _needed(template))
    other = OTHER.get(parameter.name, BY_KIND[parameter.kind])
    changed = render(template, _needed(template) | {parameter.name: other})
    assert _meant(changed) != _meant(plain), "a path that Marathon does not know changes nothing"
    assert parameter.description.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_template_with_its_own_defaults_renders_equally(name: str) -> None:
    template = load(name)
    plain = render(template, _needed(template))
    values = {each.name: str(each.default) for each in template.parameters if each.default is not None}
    assert render(template, values) == plain


def test_template_value_has_the_type_of_its_place() -> None:
    document = render(load("vllm"), {"gpus": "4", "gpu_models": "A100, H100", "minimum_health": "1"})
    assert (document["gpus"], document["env"]["TENSOR_PARALLEL"]) == (4, "4")
    assert document["gpu"] == {"models": ["A100", "H100"]}
    assert document["upgradeStrategy"]["minimumHealthCapacity"] == 1


def test_template_is_unchanged_by_rendering() -> None:
    template = load("vllm")
    before = json.dumps(template.document)
    render(template, {"gpus": "4", "model": "x", "gpu_models": "A100"})
    assert json.dumps(template.document) == before


def test_template_problems_are_reported_at_once() -> None:
    with pytest.raises(WrongValues) as caught:
        render(
            load("torch-distributed"),
            {"gpus": "two", "colour": "red", "cpus": "1e9", "workers": "-1", "models": "A100,", "id": "/Big"},
        )
    text = str(caught.value)
    for line in (
        "colour=red: there is no parameter colour; leave it out",
        "host: is missing: The agent on which the store runs",
        "gpus=two: must be an integer, as 2",
        "cpus=1e9: must be a number, as 0.5",
        "models=A100,: must be a list separated by commas, as A100,H100",
        "workers=-1 (/apps(1)/instances): ",
        "`mesos-gpu template show torch-distributed` lists the parameters",
    ):
        assert line in text
    assert caught.value.exit_code == 2
    problems = {each.path: each.reason for fault in caught.value.faults for each in fault.problems("/values")}
    assert set(problems) == {
        f"/values/{name}" for name in ("colour", "host", "gpus", "cpus", "models", "workers", "id")
    }
    assert problems["/values/gpus"] == "must be an integer, as 2"


def test_template_group_id_that_is_wrong_is_reported_once_with_problems_below() -> None:
    with pytest.raises(WrongValues) as caught:
        render(load("torch-distributed"), {"id": "/No Blanks", "host": "a", "cpus": "0"})
    assert [fault.place for fault in caught.value.faults] == ["/id", "/apps(1)/cpus"]
    inner = {"id": "in", "apps": [{"id": "Own", "cmd": "true"}, {"id": "b", "cmd": "true"}]}
    wrong = group_of({"id": "/Big", "apps": [{"id": "a", "cmd": "true", "cpus": -1}], "groups": [inner]})
    assert isinstance(wrong, Problems)
    assert [detail.path for detail in wrong.details if isinstance(detail, Detail)] == ["/id", "/apps(0)/cpus"]
    wrong = group_of({"id": "/big", "apps": [{"id": "Own", "cmd": "true"}], "groups": [inner]})
    assert isinstance(wrong, Problems)
    places = [detail.path for detail in wrong.details if isinstance(detail, Detail)]
    assert places == ["/apps(0)/id", "/groups(0)/apps(0)/id"]


def test_template_secret_is_not_repeated_and_stands_in_no_file() -> None:
    body = {
        "id": "/a",
        "cmd": "true",
        "template": {
            "about": "x",
            "parameters": {"key": {"paths": ["/env/KEY", "/cpus"], "description": "A key.", "secret": True}},
        },
    }
    with pytest.raises(WrongValues) as caught:
        render(template_of("mine", json.dumps(body).encode()), {"key": "hunter2"})
    assert "key=*** (/cpus)" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Damaged, match="a secret must have type string, and no value in the file"):
        template_of("mine", json.dumps({**body, "env": {"KEY": "x"}, "cpus": "x"}).encode())
    assert {each.name for name in NAMES for each in load(name).parameters if each.secret} == {
        "token",
        "hf_token",
        "api_key",
    }


def test_template_problem_outside_of_values_is_reported_for_all_values() -> None:
    body = {"id": "/a", "cpus": -1, "cmd": "true", "template": {"about": "x"}}
    with pytest.raises(WrongValues) as caught:
        render(template_of("mine", json.dumps(body).encode()), {})
    ((problem,),) = [fault.problems("/values") for fault in caught.value.faults]
    assert (problem.path, problem.reason.partition(":")[0]) == ("/values", "/cpus")
    assert f"({problem.reason.partition(':')[0]}): " in str(caught.value)


def test_templates_are_those_of_the_names() -> None:
    assert [each.name for each in load_all()] == NAMES
    assert load_all() == [load(name) for name in NAMES]


def test_template_value_that_marathon_refuses_is_named() -> None:
    with pytest.raises(WrongValues, match=r"gpus=5000 \(/gpus\): .*1024"):
        render(load("jupyter"), {"gpus": "5000"})
    with pytest.raises(WrongValues, match=r"id=/No Blanks \(/id\): "):
        render(load("jupyter"), {"id": "/No Blanks"})


@pytest.mark.parametrize("text", ["", "1.0", "0x1", "1_0", " 1", "9" * 400, "--1"])
def test_template_integer_that_is_malformed_is_refused(text: str) -> None:
    with pytest.raises(WrongValues, match="must be an integer"):
        render(load("vllm"), {"gpus": text})


@pytest.mark.parametrize("text", ["", ".", "1e3", "nan", "inf", "1.2.3", "-", "9" * 400])
def test_template_number_that_is_malformed_is_refused(text: str) -> None:
    with pytest.raises(WrongValues, match="must be a number"):
        render(load("vllm"), {"cpus": text})


VALUES = st.dictionaries(st.sampled_from(["gpus", "cpus", "gpu_models", "id", "model", "image"]), st.text())


@given(VALUES)
@settings(max_examples=8)
def test_template_values_of_any_text_are_rendered_or_refused(values: dict[str, str]) -> None:
    assert_rendered_or_refused(values)


@pytest.mark.long
@given(VALUES)
def test_template_values_of_many_texts_are_rendered_or_refused(values: dict[str, str]) -> None:
    assert_rendered_or_refused(values)


def assert_rendered_or_refused(values: dict[str, str]) -> None:
    """Assert that values are rendered as UTF-8, or refused."""
    try:
        document = render(load("vllm"), values)
    except WrongValues:
        return
    assert json.dumps(document, ensure_ascii=False).encode()


def test_template_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WrongValues, match="must be UTF-8"):
        render(load("vllm"), {"model": "\udcff"})


def test_template_value_that_is_empty_is_missing_where_required() -> None:
    with pytest.raises(WrongValues, match="host: is missing"):
        render(load("mesos-gpu-scheduler"), {"host": ""})


def _body(**parameter: object) -> bytes:
    about = {"about": "x", "parameters": {"p": {"paths": ["/id"], "description": "x", **parameter}}}
    return json.dumps({"id": "/a", "cmd": "sleep 1", "ports": [1], "gpus": 0, "template": about}).encode()


@pytest.mark.parametrize(
    ("body", "why"),
    {
        "no JSON": (b"{", "truncated"),
        "no object": (b"[]", "Expected `object`"),
        "no template": (b'{"id": "/a"}', "Expected `object`"),
        "an unknown key": (_body(default=1), "unknown field"),
        "an unknown type": (_body(type="gpus"), "type must be one of string, integer, number, list"),
        "no path": (_body(paths=[]), "JSON pointers, at least one"),
        "no pointer": (_body(paths=["id"]), "JSON pointers, at least one"),
        "through a value": (_body(paths=["/id/x"]), "leads through a value"),
        "beyond a list": (_body(paths=["/ports/3"]), "out of range"),
        "no index": (_body(paths=["/ports/x"]), "invalid literal"),
        "no example": (_body(paths=["/env/X"], required=True), "must have an example"),
        "places that differ": (_body(paths=["/id", "/gpus"]), "places must have equal values"),
    }.values(),
)
def test_template_file_that_is_damaged_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        template_of("mine", body)


def _run(cmd: str, env: dict[str, str], where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", cmd], env=env, cwd=where, capture_output=True, text=True, timeout=30, check=False
    )


TOOLS = {
    "jupyter": "start-notebook.py --ServerApp.ip=0.0.0.0 --ServerApp.port=31005 --ServerApp.root_dir=/notebooks",
    "mesos-gpu-scheduler": "mesos-gpu scheduler --master leader.mesos:5050 "
    "--state /var/lib/mesos-gpu/scheduler/state.sqlite --port 31005",
    "node-exporter": "dcgm-exporter --address :31005 --remote-hostengine-info localhost:5555 "
    "--collectors /etc/dcgm-exporter/default-counters.csv --collect-interval 15000",
    "pytorch-train": "torchrun --standalone --nproc-per-node=gpu /code/train.py --resume "
    "--checkpoints /data/checkpoints",
    "torch-distributed": "torchrun --nnodes=1:2 --nproc-per-node=gpu --max-restarts=100 --rdzv-backend=c10d "
    "--rdzv-id=/a --rdzv-endpoint=gpu-1.example.com:31400 --rdzv-conf=is_host=0 --local-addr=gpu-2 "
    "/code/train.py --resume --checkpoints /data/checkpoints",
    "triton": "tritonserver --model-repository=/models --http-port=31005 --grpc-port=31006 --metrics-port=31007 "
    "--exit-timeout-secs=50",
    "vllm": "vllm serve Qwen/Qwen2.5-7B-Instruct --host 0.0.0.0 --port 31005 --tensor-parallel-size 1 "
    "--max-model-len 8192",
}


@pytest.mark.parametrize("name", TOOLS)
def test_template_command_calls_its_tool_with_the_arguments(name: str, tmp_path: Path) -> None:
    app = _apps(dict(load(name).document))[-1]
    tool, *arguments = TOOLS[name].split()
    (tmp_path / tool).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / tool).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOST": "gpu-2", "MARATHON_APP_ID": "/a"}
    ports = {"PORT0": "31005", "PORT1": "31006", "PORT2": "31007"}
    ran = _run(app["cmd"], {**env, **ports, **app.get("env", {})}, tmp_path)
    assert (ran.stdout.splitlines(), ran.stderr) == (arguments, "")


def test_template_of_the_scheduler_has_known_options() -> None:
    _, _, *arguments = TOOLS["mesos-gpu-scheduler"].split()
    context = scheduler.make_context("scheduler", arguments, help_option_names=["-h", "--help"])
    assert context.params["port"] == 31005


@pytest.mark.parametrize(
    ("role", "host", "index"),
    [("ps", "gpu-3", 0), ("worker", "gpu-1", 0), ("worker", "gpu-2", 1), ("chief", "gpu-3", 0)],
)
def test_template_of_tensorflow_sets_the_roles(role: str, host: str, index: int, tmp_path: Path) -> None:
    hosts = {"chief_host": "gpu-3", "ps_hosts": "gpu-3", "worker_hosts": "gpu-1|gpu-2"}
    script = tmp_path / "train.py"
    script.write_text("import os, sys; print(os.environ['TF_CONFIG'], *sys.argv[1:], sep='\\n')")
    document = render(load("tensorflow-train"), hosts | {"script": str(script), "args": "--epochs 3"})
    app = next(each for each in document["apps"] if each["id"] == role)
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOST": host}
    ran = _run(app["cmd"], env | app["env"], tmp_path)
    config, *arguments = ran.stdout.splitlines()
    assert json.loads(config) == {
        "cluster": {
            "chief": ["gpu-3:31220"],
            "ps": ["gpu-3:31221"],
            "worker": ["gpu-1:31222", "gpu-2:31222"],
        },
        "task": {"type": role, "index": index},
    }
    assert arguments == ["--epochs", "3"]
    port = json.loads(config)["cluster"][role][0].partition(":")[2]
    assert str(app["portDefinitions"][0]["port"]) == port, "it listens where the others look for it"


# As much of PyTorch as the burn needs. GPU 1 computes wrongly from the second product on, if WRONG is set.
TORCH = """
import os
float16 = None
class Differing(int):
    def sum(self): return int(self)
class Matrix(float):
    gpu, times = "", 0
    def __matmul__(self, other):
        product = Matrix(self * other + (self.times if self.gpu == "cuda:1" and "WRONG" in os.environ else 0))
        self.times += 1
        return product
    def __ne__(self, other): return Differing(not self == other)
def randn(*shape, device, dtype):
    pair = [Matrix(2), Matrix(3)]
    pair[0].gpu = device
    return pair
class cuda:
    device_count = staticmethod(lambda: 2)
    get_device_name = staticmethod(lambda i: "NVIDIA Fake")
"""


@pytest.mark.parametrize(
    ("env", "code", "said"),
    [
        ({}, 0, "GPU 1 NVIDIA Fake: OK, "),
        ({"WRONG": "1"}, 1, "GPU 1 computes wrongly: 20 numbers in 20 products"),
        ({"MARATHON_APP_RESOURCE_GPUS": "3"}, 1, "2 GPUs are seen"),
    ],
)
def test_template_of_gpu_burn_serves_its_result_only_if_all_gpus_pass(
    env: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    app = render(load("gpu-burn"), {"gpus": "2"})
    with socket.socket() as taken:  # then http.server ends instead of serving for ever
        taken.bind(("", 0))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        fixed = {"PATH": path, "PYTHONPATH": str(tmp_path), "MARATHON_APP_RESOURCE_GPUS": "2"}
        port = {"SECONDS_EACH": "0.01", "PORT0": str(taken.getsockname()[1])}
        ran = _run(app["cmd"], {**fixed, **app["env"], **port, **env}, tmp_path)
    result = (tmp_path / "passed/result.txt").read_text()
    if code == 0:
        assert said in result
        assert "Address already in use" in ran.stderr, "it went on to serve it"
    else:
        assert (ran.returncode, result) == (code, "")
        assert said in ran.stderr
