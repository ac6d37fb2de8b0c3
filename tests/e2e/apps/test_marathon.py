"""An app's life through Marathon's REST interface, on real Mesos."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]
SERVE = "exec python3 -m http.server $PORT0"
WEB: dict[str, Any] = {
    "id": "/shop/web",
    "cmd": SERVE,
    "cpus": 0.1,
    "mem": 64,
    "instances": 2,
    "portDefinitions": [{"port": 0, "name": "http"}],
    "healthChecks": [
        {"protocol": "HTTP", "path": "/", "portIndex": 0, "gracePeriodSeconds": 20, "intervalSeconds": 1}
    ],
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-test-") as directory:
        Path(directory).chmod(0o755)
        with Stack(Path(directory) / "cluster", [NodeSpec(2)] * 2) as stack, Client(stack.url) as client:
            wait_until("the nodes report", lambda: len(client.gpus()) == 4)
            yield stack


@pytest.fixture
def url(stack: Stack) -> str:
    return stack.url


def call(verb: str, url: str, status: int, **how: Any) -> Any:
    answer = requests.request(verb, url, timeout=60, **how)
    assert answer.status_code == status, answer.text
    return answer.json()


def app(url: str) -> dict[str, Any]:
    shown: dict[str, Any] = call("GET", f"{url}/v2/apps/shop/web", 200)["app"]
    return shown


def settled(url: str) -> None:
    wait_until("the deployment is done", lambda: not call("GET", f"{url}/v2/deployments", 200), 60)


def test_marathon_app_is_created_scaled_updated_and_deleted(url: str) -> None:
    made = call("POST", f"{url}/v2/apps", 201, json=WEB)
    assert made["deployments"]
    assert (
        call("POST", f"{url}/v2/apps", 409, json=WEB)["message"]
        == "An app with id [/shop/web] already exists."
    )
    settled(url)
    shown = app(url)
    assert (shown["tasksRunning"], shown["tasksHealthy"]) == (2, 2)
    for task in shown["tasks"]:
        assert requests.get(f"http://127.0.0.1:{task['ports'][0]}/", timeout=60).status_code == 200
    first = {task["id"] for task in shown["tasks"]}

    call("PUT", f"{url}/v2/apps//shop/web", 200, json={"instances": 3.0})
    settled(url)
    assert first < {task["id"] for task in app(url)["tasks"]}

    update = {
        "cmd": f"true; {SERVE}",
        "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0.5},
    }
    call("PATCH", f"{url}/v2/apps/shop/web", 200, json=update)
    locked = call("PUT", f"{url}/v2/apps/shop/web", 409, json={"instances": 1})
    assert "locked" in locked["message"]
    least = 3

    def done() -> bool:
        nonlocal least
        least = min(least, app(url)["tasksHealthy"])
        return not call("GET", f"{url}/v2/deployments", 200)

    wait_until("the update is done", done, 60)
    assert least >= 2
    assert not first & {task["id"] for task in app(url)["tasks"]}
    assert len(call("GET", f"{url}/v2/apps/shop/web/versions", 200)["versions"]) == 3

    call("DELETE", f"{url}/v2/apps/shop/web?force=True", 200)
    settled(url)
    assert call("GET", f"{url}/v2/apps/shop/web", 404)["message"] == "App '/shop/web' does not exist"


def test_marathon_deployment_waits_until_its_tasks_are_ready(url: str, open_directory: Path) -> None:
    go = open_directory / "go"
    slow = {
        "id": "/slow",
        "cmd": f"python3 -m http.server $PORT0 & while [ ! -e {go} ]; do sleep 0.2; done; touch ready; wait",
        "cpus": 0.1,
        "mem": 64,
        "portDefinitions": [{"port": 0, "name": "http"}],
        "readinessChecks": [
            {
                "portName": "http",
                "path": "/ready",
                "intervalSeconds": 2,
                "timeoutSeconds": 1,
                "preserveLastResponse": True,
            }
        ],
    }
    id = call("POST", f"{url}/v2/apps", 201, json=slow)["deployments"][0]["id"]

    def asked() -> Any:
        shown = call("GET", f"{url}/v2/apps/slow?embed=app.readiness", 200)["app"]
        results = shown["tasksRunning"] and shown["readinessCheckResults"]
        return [each for each in results or () if "lastResponse" in each]  # at first nobody listens there

    [result] = wait_until("it was asked, and has answered", asked)
    assert (result["ready"], result["lastResponse"]["status"]) == (False, 404)
    [deployment] = call("GET", f"{url}/v2/deployments?embed=waiting", 200)
    assert deployment["id"] == id
    assert deployment["currentActions"][0]["readinessCheckResults"] == [result]
    assert deployment["waiting"] == {"/slow": "waits for 1 new instance to pass the readiness checks"}
    go.touch()
    settled(url)
    call("DELETE", f"{url}/v2/apps/slow", 200)


def test_marathon_app_with_gpus_holds_them(url: str) -> None:
    gpu_app = {"id": "/gpu", "cmd": "sleep 300", "cpus": 0.1, "mem": 32, "gpus": 2, "instances": 2}
    call("POST", f"{url}/v2/apps", 201, json=gpu_app)
    settled(url)
    gpus = call("GET", f"{url}/v1/gpus", 200)["gpus"]
    assert all(gpu["job_id"] and gpu["job_id"].startswith("gpu.instance-") for gpu in gpus)
    call("DELETE", f"{url}/v2/apps/gpu", 200)
    settled(url)


def test_marathon_update_goes_on_after_kill_9_and_never_serves_too_little(stack: Stack, url: str) -> None:
    """Count instances at their own ports, not by the scheduler: of two at least one is up."""
    service = {
        **WEB,
        "id": "/model",
        "gpus": 1,
        "instances": 2,
        "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 0.0},
    }
    call("POST", f"{url}/v2/apps", 201, json=service)
    settled(url)
    ports: set[int] = set()

    def serving() -> int:
        try:
            tasks = requests.get(f"{url}/v2/apps/model", timeout=60).json()["app"]["tasks"]
            ports.update(port for task in tasks for port in task["ports"])
        except (requests.RequestException, KeyError):
            pass  # the scheduler is away
        return sum(answers(port) for port in ports)

    assert serving() == 2
    call("PUT", f"{url}/v2/apps/model", 200, json={"cmd": f"true; {SERVE}"})
    old = set(ports)
    least = 2

    def half_way() -> bool:
        nonlocal least
        least = min(least, serving())
        return any(not answers(port) for port in old)

    wait_until("the first have gone", half_way, 60)
    stack.scheduler.kill()
    for _ in range(5):
        least = min(least, serving())
    stack.scheduler.start().wait()

    def done() -> bool:
        nonlocal least
        least = min(least, serving())
        return bool(requests.get(f"{url}/v2/deployments", timeout=60).json() == [])

    wait_until("the update is done", done, 90)
    assert least >= 1
    assert serving() == 2
    assert not any(answers(port) for port in old)
    call("DELETE", f"{url}/v2/apps/model", 200)
    settled(url)


def answers(port: int) -> bool:
    try:
        return bool(requests.get(f"http://127.0.0.1:{port}/", timeout=60).status_code == 200)
    except requests.RequestException:
        return False


def test_app_commands_create_scale_update_and_delete(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", url)
    web = {**WEB, "id": "/cli/web", "instances": 1, "env": {"A": "1"}}
    (tmp_path / "web.json").write_text(json.dumps(web))

    def command(*words: str, code: int = 0) -> str:
        got = CliRunner().invoke(main, words, prog_name="mesos-gpu")
        assert got.exit_code == code, got.output
        return got.stdout

    told = command("app", "create", str(tmp_path / "web.json"), "--wait")
    assert told.endswith("/cli/web: done\n")
    assert "step 2 of 2: scale /cli/web, 0 of 1 up\n" in told
    port = json.loads(command("app", "tasks", "/cli/web", "--json"))[0]["ports"][0]
    assert answers(port)
    command("app", "scale", "/cli/web", "+1", "--wait")
    command("app", "update", "/cli/web", "env.A=2", "instances=1", "--wait")
    assert '  ~ env.A: "2" -> "1"\n' in command("diff", str(tmp_path / "web.json"), code=1)
    command("app", "rollback", "/cli/web")
    assert command("app", "list", "/cli").splitlines()[1].split()[0] == "/cli/web"
    command("app", "delete", "/cli/web", "--force", "--wait")
    wait_until("the app is gone", lambda: not answers(port))
