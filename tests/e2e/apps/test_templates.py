"""The templates on a real Mesos, as `render` prints them: stand-ins for the programs of their images say what they got.

The commands are the templates' own. Only health checks are made more often, so that the test is short.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client
from mesos_gpu.local.cluster import Cluster
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.jobs.permits import Root
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, layer, save
from tests.doubles.python_image import python_layer
from tests.kernel.conftest import needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(dockerd.missing()), reason=f"needs a static busybox: {dockerd.missing()}"),
]
STAND_INS = Path(__file__).parents[2] / "data" / "templates"
APPLETS = ["sh", "cat", "env", "grep", "httpd", "ls", "mkdir", "sleep", "tee", "touch"]
PACKAGES = ["collections", "email", "encodings", "html", "http", "importlib", "json", "re", "urllib"]
MODULES = ["_bisect", "_blake2", "_datetime", "_json", "_md5", "_posixsubprocess", "_random", "_sha*", "_socket",
           "_struct", "array", "binascii", "fcntl", "grp", "math", "select", "unicodedata", "zlib"]  # fmt: skip
NODES = ("127.0.0.1", "127.0.0.2")  # both are this machine
WRITTEN = ("torch", "tensorflow", "notebooks", "cache")
ANY_NODE = r"127\..*"
FIXED = ("tensorflow-train", "torch-distributed")  # have ports by number


def values(data: Path, master: str, first: int = 9000) -> dict[str, dict[str, str]]:
    """Return the values that a user sets; ports are those from the first that both agents offer."""
    names = ("torch", "tensorflow")
    code, out = ({name: str(data / kind / name) for name in names} for kind in ("code", "out"))
    return {
        "gpu-burn": {"host": NODES[1], "seconds": "1", "gpus": "2"},
        "jupyter": {"notebooks": str(data / "out" / "notebooks"), "token": "letmein", "host": ANY_NODE},
        "mesos-gpu-scheduler": {"host": NODES[0], "master": master, "state": str(data / "out" / "state.sqlite")},
        "node-exporter": {"instances": "2", "host": ANY_NODE, "hostengine": "localhost:6666"},
        "pytorch-train": {"code": code["torch"], "data": out["torch"], "args": "--epochs 3"},
        "tensorflow-train": {
            "chief_host": NODES[0], "ps_hosts": NODES[1], "worker_hosts": "|".join(NODES), "code": code["tensorflow"],
            "data": out["tensorflow"], "args": "--epochs 4",
            "chief_port": str(first + 1), "ps_port": str(first + 2), "worker_port": str(first + 3),
        },
        "torch-distributed": {
            "host": NODES[0], "port": str(first), "code": code["torch"], "data": out["torch"], "args": "--epochs 5",
            "least": "2",
        },
        "triton": {"models": str(data / "code" / "models"), "gpu_memory_mib": "40000"},
        "vllm": {"model": "small", "gpus": "2", "instances": "1", "cache": str(data / "out" / "cache")},
    }  # fmt: skip


@pytest.fixture(scope="module")
def data(open_directory: Path) -> Path:
    """Directories of the host: what jobs may read, and what they may write."""
    data = open_directory / "data"
    for name in ("code/torch", "code/tensorflow", "code/models", *(f"out/{name}" for name in WRITTEN)):
        (data / name).mkdir(parents=True)
    for directory in (data / "out").iterdir():
        directory.chmod(0o777)
    for name in ("torch", "tensorflow"):
        (data / "code" / name / "train.py").write_bytes((STAND_INS / f"train-{name}").read_bytes())
    (data / "code/models/resnet").touch()
    return data


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    """The images that the templates name, all with the same in them."""
    directory = open_directory / "images"
    version = f"python3.{sys.version_info.minor}"
    files = {
        "usr/bin/torchrun": (STAND_INS / "torchrun").read_bytes(),
        f"usr/lib/{version}/torch/__init__.py": (STAND_INS / "torch").read_bytes(),
        f"usr/lib/{version}/torch/distributed.py": (STAND_INS / "torch.distributed").read_bytes(),
    }
    for name in ("dcgm-exporter", "start-notebook.py", "tritonserver", "vllm"):
        files[f"usr/bin/{name}"] = (STAND_INS / "server").read_bytes()
    layers = [busybox_layer(dockerd.busybox(), APPLETS), python_layer(PACKAGES, MODULES), layer(files)]
    config = {"Env": ["PATH=/usr/bin:/bin", "PYTHONHOME=/usr"]}
    for name in {image for app in apps_of(documents(Path("/"), "m:1")) if (image := image_of(app))}:
        save(directory, name, layers, config)
    return directory


def documents(data: Path, master: str, first: int = 9000) -> dict[str, dict[str, Any]]:
    """All templates, as `render` prints them."""
    printed_by_name = {}
    for name, given in values(data, master, first).items():
        words = [word for key, value in given.items() for word in ("-s", f"{key}={value}")]
        printed = CliRunner().invoke(main, ["template", "render", name, *words])
        assert printed.exit_code == 0, printed.output
        printed_by_name[name] = json.loads(printed.stdout)
    return printed_by_name


def apps_of(documents: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in documents.values():
        yield from document.get("apps", [document])


def image_of(app: dict[str, Any]) -> str | None:
    name: str | None = app.get("container", {}).get("docker", {}).get("image")
    return name


def settled(url: str) -> None:
    """Wait until all are deployed, or fail with what is missing."""
    try:
        wait_until("all are deployed", lambda: not get(url, "/v2/deployments"), 90)
    except AssertionError as error:
        waiting = [each["waiting"] for each in get(url, "/v2/deployments?embed=waiting")]
        apps = get(url, "/v2/apps?embed=apps.lastTaskFailure")["apps"]
        failures = {app["id"]: app.get("lastTaskFailure", {}).get("message") for app in apps}
        raise AssertionError(f"{error}; {waiting}; {failures}") from error


@pytest.fixture(scope="module")
def url(open_directory: Path, data: Path, images: Path) -> Iterator[str]:
    """The interface, when all templates run."""
    needs("cgroup1")
    given = {
        "MESOS_GPU_VOLUME_ROOTS": f"{data / 'code'}:ro,{data / 'out'}",
        "MESOS_GPU_TMP": "host",  # this checkout, of which one of them runs, may lie below /tmp
        "MESOS_GPU_PORT_PROOF": "off",  # both agents are this machine, and workers on both share one port
    }
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (
        Stack(
            open_directory / "stack",
            [NodeSpec(12, cpus=64, mem_mib=512 * 1024, hostname=node) for node in NODES],
            images=images,
            devices="mesos",
            executor_environment=given,
            allow_root=Root.HOST,
            scheduler_arguments=["--control-access", "/mesos-gpu/scheduler=master"],
        ) as stack,
        Cluster(open_directory / "other", []) as other,
        Client(stack.url) as client,
    ):
        wait_until("the nodes report", lambda: len(client.gpus()) == 24)
        sent = documents(data, f"127.0.0.1:{other.master.port}", stack.cluster.fixed_ports[0])
        for app in apps_of(sent):
            for check in app.get("healthChecks", []):
                check |= {"delaySeconds": 0, "intervalSeconds": 1}
            for check in app.get("readinessChecks", []):
                check |= {"intervalSeconds": 2, "timeoutSeconds": 1}
        sent["mesos-gpu-scheduler"]["env"] |= path  # where this checkout's mesos-gpu is
        sent["mesos-gpu-scheduler"]["user"] = "root"  # this checkout need not be open to others
        # Both agents are this machine. Who wants one port gets it first: who wants any tries again with another.
        for names in (FIXED, sent.keys() - set(FIXED)):
            for name in sorted(names):
                document = sent[name]
                answer = requests.post(
                    f"{stack.url}/v2/{'groups' if 'apps' in document else 'apps'}", json=document, timeout=10
                )
                assert answer.status_code == 201, answer.text
            settled(stack.url)
        yield stack.url


def get(url: str, path: str) -> Any:
    answer = requests.get(url + path, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_templates_all_run_and_are_healthy(url: str) -> None:
    embed = "?embed=apps.counts&embed=apps.lastTaskFailure"
    apps = {app["id"]: app for app in get(url, f"/v2/apps{embed}")["apps"]}
    assert len(apps) == 12
    for app in apps.values():
        failure = (app["id"], app.get("lastTaskFailure"))
        assert app["tasksRunning"] == app["instances"], failure
        assert app["tasksHealthy"] == (app["instances"] if app.get("healthChecks") else 0), failure


def served(url: str, app: str) -> list[dict[str, str]]:
    """Return the pages that each instance of a server shows at its first port."""
    pages = ("called", "devices", "env", "files", "write")
    instances = []
    for task in get(url, f"/v2/apps{app}/tasks")["tasks"]:
        at = f"http://127.0.0.1:{task['ports'][0]}"
        answers = {page: requests.get(f"{at}/{page}", timeout=60) for page in pages}
        instances.append({page: answer.text if answer.ok else "" for page, answer in answers.items()})
        assert f"PORT0={task['ports'][0]}\n" in instances[-1]["env"]
        assert f"MESOS_TASK_ID={task['id']}\n" in instances[-1]["env"]
    return instances


def cards(devices: str) -> int:
    return sum(name.removeprefix("nvidia").isdigit() for name in devices.split())


def test_templates_of_servers_get_their_cards_ports_and_directories(url: str) -> None:
    for app, instances, gpus, files, write in (
        ("/notebooks/jupyter", 1, 1, "", "yes"),
        ("/inference/triton", 2, 1, "resnet", "touch: /models/mine: Read-only file system"),
        ("/inference/vllm", 1, 2, "", "yes"),
        ("/monitoring/node-exporter", 2, 0, "", ""),
    ):
        pages_shown = served(url, app)
        assert len(pages_shown) == instances
        for each in pages_shown:
            assert (cards(each["devices"]), each["files"].strip(), each["write"].strip()) == (
                gpus,
                files,
                write,
            )
    assert "--tensor-parallel-size 2" in served(url, "/inference/vllm")[0]["called"]
    assert "JUPYTER_TOKEN=letmein\n" in served(url, "/notebooks/jupyter")[0]["env"]
    assert "--remote-hostengine-info localhost:6666" in served(url, "/monitoring/node-exporter")[0]["called"]


@pytest.mark.long
def test_template_of_gpu_burn_names_the_gpus_it_tried(url: str) -> None:
    (task,) = get(url, "/v2/apps/smoke/gpu-burn/tasks")["tasks"]
    said = requests.get(f"http://127.0.0.1:{task['ports'][0]}/result.txt", timeout=60).text.splitlines()
    assert [line.partition(":")[0] for line in said] == ["GPU 0 of a test", "GPU 1 of a test"]
    assert task["host"] == NODES[1]


def written(directory: Path, kind: str, count: int) -> dict[str, Any]:
    """Return the documents that processes of a training have written, by their names."""
    pattern = f"{kind}-*.json"
    wait_until(f"{count} of {kind} have written", lambda: len(list(directory.glob(pattern))) == count)
    return {
        path.stem.removeprefix(f"{kind}-"): json.loads(path.read_text()) for path in directory.glob(pattern)
    }


def test_template_of_torch_has_a_process_for_each_card(url: str, data: Path) -> None:
    alone = written(data / "out/torch", "torch_train_pytorch", 2)
    assert sorted(alone) == ["0", "1"]
    assert {len(each["devices"]) for each in alone.values()} == {2}
    assert alone["0"]["arguments"] == ["--epochs", "3"]
    spread = written(data / "out/torch", "torch_train_torch_worker", 4)
    assert sorted(spread) == ["0", "1", "2", "3"], "each node met the others at the store"
    assert {each["HOST"] for each in spread.values()} == set(NODES)
    granted = [each["NVIDIA_VISIBLE_DEVICES"] for each in (alone["0"], spread["0"], spread["2"])]
    assert len({card for cards in granted for card in cards.split(",")}) == 6, "no card is given twice"


def test_template_of_tensorflow_connects_its_members(url: str, data: Path) -> None:
    members = written(data / "out/tensorflow", "tensorflow", 4)
    assert sorted(members) == ["chief-0", "ps-0", "worker-0", "worker-1"]
    assert [members[name]["host"] for name in sorted(members)] == [NODES[0], NODES[1], *NODES]
    cluster_of = members["chief-0"]["cluster"]
    assert all(each["cluster"] == cluster_of for each in members.values())
    assert members["chief-0"]["reached"] == cluster_of["ps"] + cluster_of["worker"]
    assert [members[name]["gpus"].startswith("GPU-") for name in sorted(members)] == [
        False,
        False,
        True,
        True,
    ]


def test_template_of_the_scheduler_runs_as_an_app_of_another(url: str, data: Path) -> None:
    (task,) = get(url, "/v2/apps/mesos-gpu/scheduler/tasks")["tasks"]
    health = get(f"http://127.0.0.1:{task['ports'][0]}", "/v1/health")
    assert health["connected"] is True
    assert (data / "out/state.sqlite").exists()
