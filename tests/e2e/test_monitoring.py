"""A real Prometheus reads the scheduler of a real Mesos: the values that cards report, and an answer to each query of
the boards and rules."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu_use import Meters
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call
from tests.contract.metrics.prometheus import Prometheus, names_in, needs_prometheus, queries

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), needs_prometheus]
#: Each meter has a number of its own: one that stood for another would be seen.
SAID: Final = {field.name: 1000 + number for number, field in enumerate(fields(Meters))} | {
    "gpu_pct": 37,
    "temperature_c": 61,
}


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    flags = {"agent_ping_timeout": "5secs", "max_agent_ping_timeouts": "3"}
    nodes = [NodeSpec(4), NodeSpec(2)]
    with Stack(
        open_directory / "stack", nodes, scheduler_arguments=["--report-interval", "1"], master_flags=flags
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("all cards are well", lambda: [gpu["health"] for gpu in client.gpus()] == ["ok"] * 6)
        yield client


@pytest.fixture
def prometheus(stack: Stack, tmp_path: Path) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path, stack.url)
    yield prometheus
    prometheus.stop()


def told(stack: Stack, *words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        done = call("--url", stack.url, *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_dcgm(meters: dict[str, int]) -> dict[str, float]:
    """Return the values that a card must have under DCGM's names."""
    names = {
        "SM_CLOCK": "sm_clock_mhz", "MEM_CLOCK": "memory_clock_mhz", "MEMORY_TEMP": "memory_temperature_c",
        "GPU_TEMP": "temperature_c", "TOTAL_ENERGY_CONSUMPTION": "energy_mj", "PCIE_REPLAY_COUNTER": "pcie_replays",
        "PCIE_TX_THROUGHPUT": "pcie_tx_kib_s", "PCIE_RX_THROUGHPUT": "pcie_rx_kib_s", "GPU_UTIL": "gpu_pct",
        "MEM_COPY_UTIL": "memory_pct", "ENC_UTIL": "encoder_pct", "DEC_UTIL": "decoder_pct",
        "FB_FREE": "memory_free_mib", "FB_USED": "memory_used_mib", "FB_RESERVED": "memory_reserved_mib",
        "UNCORRECTABLE_REMAPPED_ROWS": "uncorrectable_rows", "CORRECTABLE_REMAPPED_ROWS": "correctable_rows",
        "ROW_REMAP_FAILURE": "row_remap_failure",
    }  # fmt: skip
    values: dict[str, float] = {name: meters[meter] for name, meter in names.items()}
    values["NVLINK_BANDWIDTH_TOTAL"] = meters["nvlink_tx_kib"] + meters["nvlink_rx_kib"]
    values["POWER_USAGE"], values["POWER_MGMT_LIMIT"] = (
        meters[name] / 1000 for name in ("power_mw", "power_limit_mw")
    )
    return {f"DCGM_FI_DEV_{name}": value for name, value in values.items()} | {"DCGM_FI_DEV_FB_TOTAL": 81920}


def edit(stack: Stack, node: int, minor: int, **said: Any) -> str:
    """Let a card say something; its UUID."""
    path = stack.inventory(node)
    uuid = json.loads(path.read_text())["gpus"][minor]["uuid"]
    assert change_gpu(path, GpuId(uuid), **said)
    return str(uuid)


def use_is_as_cards_say_it(stack: Stack, client: Client, prometheus: Prometheus) -> None:
    """Compare what two inventories say with what Prometheus has, to the last digit, and with what people read."""
    wanted = {"name": "train", "command": "sleep 300", "gpus": 2, "cpus": 0.1, "mem_mib": 32}
    job = client.submit(wanted)["id"]
    wait_until("it runs", lambda: client.job(job)["state"] == "running")
    (host,) = client.job(job)["hostnames"]
    node = 1 if host.endswith(".11") else 2
    held = {gpu["uuid"] for gpu in client.gpus() if gpu["job_id"] == job}
    minors = [gpu["minor"] for gpu in client.gpus() if gpu["uuid"] in held]
    busy = edit(stack, node, minors[0], use={**SAID, "busy_pct": 60})
    idle = edit(stack, node, minors[1], use={**dict.fromkeys(SAID, 0), "busy_pct": 0})
    for uuid, meters in ((busy, SAID), (idle, dict.fromkeys(SAID, 0))):
        wait_until(
            "what the card says is there, and nothing else",
            lambda uuid=uuid, meters=meters: (
                prometheus.series(f'{{__name__=~"DCGM_.*",UUID="{uuid}"}}') == as_dcgm(meters)
            ),  # type: ignore[misc]
        )
    counts = ("busy", "seen")
    rate = " / ".join(f"rate(mesos_gpu_gpu_{each}_seconds_total{{UUID='{busy}'}}[15s])" for each in counts)

    def is_busy() -> bool:
        answered = prometheus.ask("query", query=rate)["result"]
        return bool(answered) and 0.55 < float(answered[0]["value"][1]) < 0.65

    wait_until("its rate of work is that of the file", is_busy)
    wait_until("show draws it", lambda: "use, last 15 min" in told(stack, "show", job))
    assert "% busy" in told(stack, "show", job)
    (row,) = [line for line in told(stack, "top", "tasks", "-1").splitlines() if job in line]
    assert f" {SAID['memory_used_mib']} " in row
    assert [line.split()[3] for line in told(stack, "top", "-1", "--sort", "memory").splitlines()[1:2]] == [
        job
    ]
    (job_row,) = [line for line in told(stack, "ps", "--columns", "id,use").splitlines() if job in line]
    assert job_row.split()[1].endswith("%")
    client.kill(job)


def ask_all(stack: Stack, prometheus: Prometheus) -> None:
    """Every name of a query is declared, and every query is one."""
    page = requests.get(f"{stack.url}/metrics/prometheus", timeout=60).text
    declared = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    declared |= set(prometheus.ask("label/__name__/values"))
    declared |= {"mesos_gpu_zookeeper_answers", "mesos_gpu_standbys"}  # of several schedulers alone
    for query in queries():
        assert names_in(query) <= declared, query
        assert prometheus.ask("query", query=query)["resultType"] in ("vector", "scalar"), query
    for name, value in (("webhooks_readable", "1"), ('webhook_waiting{webhook="*"}', "0")):
        (sample,) = prometheus.ask("query", query=f"mesos_gpu_{name}")["result"]
        assert sample["value"][1] == value, name


def test_prometheus_has_the_use_that_cards_report(
    stack: Stack, client: Client, prometheus: Prometheus
) -> None:
    wait_until("it scrapes", prometheus.is_up)
    use_is_as_cards_say_it(stack, client, prometheus)
    ask_all(stack, prometheus)
