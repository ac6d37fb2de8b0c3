"""`mesos-gpu template`."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mesos_gpu.adapters.files import templates
from mesos_gpu.cli import main
from mesos_gpu.wire.marathon.app import decode_app


def _run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["template", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_template_list_names_all_templates() -> None:
    lines = _run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == templates.names()
    by_name = {each["name"]: each for each in json.loads(_run("list", "--json").stdout)}
    assert (by_name["vllm"]["kind"], by_name["vllm"]["route"]) == ("app", "/v2/apps")
    assert (by_name["tensorflow-train"]["kind"], by_name["tensorflow-train"]["route"]) == (
        "group",
        "/v2/groups",
    )


def test_template_list_has_the_forms_of_all_lists() -> None:
    listed = json.loads(_run("list", "-o", "json").stdout)
    assert yaml.safe_load(_run("list", "-o", "yaml").stdout) == listed
    assert _run("list", "-q").stdout.split() == [each["name"] for each in listed]
    assert _run("list", "-o", "name", "--name", "torch-*").stdout == "torch-distributed\n"
    routes = _run("list", "--columns", "route,name", "--sort", "-name").stdout.splitlines()
    assert routes[0].split() == ["ROUTE", "NAME"]
    assert [line.split()[1] for line in routes[1:]] == sorted(templates.names(), reverse=True)


def test_template_show_lists_the_parameters() -> None:
    shown = _run("show", "torch-distributed").stdout
    assert "torch-distributed: PyTorch training over several nodes" in shown
    assert "(required)" in shown
    described = json.loads(_run("show", "torch-distributed", "--json").stdout)
    assert described["parameters"]["host"]["required"] is True
    assert described["parameters"]["host"]["default"] is None
    assert described["parameters"]["host"]["example"] == "gpu-1.example.com"
    assert described["parameters"]["workers"]["default"] == 2
    assert described["document"]["id"] == "/train/torch"


def test_template_render_prints_a_marathon_app() -> None:
    result = _run("render", "vllm", "-s", "gpus=2", "-s", "args=--max-model-len=4096 --seed=1")
    assert "/v2/apps" in result.stderr
    app = decode_app(result.stdout.encode())
    assert (app.gpus, app.env["ARGS"]) == (2, "--max-model-len=4096 --seed=1")  # type: ignore[union-attr]
    assert _run("render", "vllm", "--json").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("vllm", "-s", "gpu=2"), 2, "gpu=2: there is no parameter gpu; leave it out"),
        (("vllm", "-s", "gpus"), 2, "is not KEY=VALUE, for example gpus=2"),
        (("vllm", "-s", "gpus=1", "-s", "gpus=2"), 2, "set twice: gpus"),
        (("vllm", "-s", "gpus=-1"), 2, "gpus=-1 (/gpus): "),
        (("mesos-gpu-scheduler",), 2, "host: is missing"),
        (("vlm",), 66, "there is no template vlm"),
        (("../setup",), 66, "there is no template ../setup"),
    ],
)
def test_template_command_refuses_values_that_cannot_be_rendered(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = _run("render", *arguments, code=code)
    assert said in result.stderr
    assert result.stdout == ""


def test_template_command_without_templates_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(templates, "directory", lambda: tmp_path)
    assert "reinstall mesos_gpu" in _run("show", "vllm", code=69).stderr
    assert "there are no templates in " in _run("list", code=69).stderr


def test_template_names_are_completed() -> None:
    result = CliRunner().invoke(
        main,
        [],
        prog_name="mesos-gpu",
        env={
            "_MESOS_GPU_COMPLETE": "bash_complete",
            "COMP_WORDS": "mesos-gpu template show t",
            "COMP_CWORD": "3",
        },
    )
    assert result.stdout.split() == ["plain,tensorflow-train", "plain,torch-distributed", "plain,triton"]
