"""Messages between schedulers and hosts as nouns, by name: what tests/data/wire/WIRE has of each as bytes.

`python -m tests.unit.wire.hosts.released DIRECTORY` writes those of the program that is first on PYTHONPATH.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit
from mesos_gpu.model.jobs.job import JobSpec, NoticeSignal
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.jobs.port import PortBinding
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Link, Transition
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.card import Ability, MigInstance, MigProfile, Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.wire.mesos import assignment, notice, report, resize, seal
from mesos_gpu.wire.mesos.v1 import reset_message, start_message

DATA: Final = Path(__file__).parents[3] / "data" / "wire"
_G: Final = GpuId("GPU-0a")
_SHARING: Final = Sharing(
    40_000,
    ((Ability.MIG, ""), (Ability.SHIM, "off")),
    108,
    True,
    (MigInstance("MIG-1", "1g.5gb", 4864, 14, 7, 0, 142, 125, 0, 1),),
    (MigProfile("1g.5gb", 19, 4864, 142, 125, (0, 1), 1),),
    48,
    True,
)
_GPU: Final = Gpu(
    _G, "A100", 40_960, 3, "0000:01:00.0", 1, (Link(GpuId("GPU-0b"), "NV4"),), Health.OK, "", 1700.5,
    ("slowed",), (Transition(1600.0, Health.SUSPECT, Health.OK, "clean"),), "8.0", _SHARING,
)  # fmt: skip
_FULL: Final = Inventory(
    (_GPU, Gpu(GpuId("GPU-0b"), "T4", 15_360, 4, "", health=Health.SICK, reason="XID 79")),
    "nvml", "535.104.05", "12.2", "cgroup2", "denied", "535.104.05", "",
    (ShareUse(TaskId("t-1"), _G, 100, 200),),
    (GpuUse(_G, 1700.0, Meters(40, power_mw=250_000), Work(1000.0, 900, 300), 2, 13),),
    (TaskUse(TaskId("t-1"), _G, 1700.0, 1, 100, Work(1000.0, 900, 300), 1650.0),),
    "A" * 43 + "=", "",
)  # fmt: skip
_SHARE: Final = Share(250, 10_000, 12_000, Method.DMEM_MPS3, "ada", "")
_PLAIN: Final = Assignment("job-1", 2, "true", env={"A": "b"}, user="ada", gpus=(_G,), secret="5e" * 16)
_RICH: Final = Assignment(
    "job-2", 1, argv=("python", "train.py"), timeout_s=60.0, image="cuda:12", container_engine="docker", cpus=1.5,
    mem_mib=512, hosts=("h1", "h2"), checks="[]", mounts=(Mount("/a", "b", read_only=False),),
    bindings=(PortBinding(80, 31000, "udp"),), docker=DockerOptions(ulimits=(Ulimit("memlock", -1, -1),), init=True),
    pull=True, fetch=({"value": "http://h/a"},), disk_mib=100, log_limit_mib=64,
    control_ports=(ControlPort("api", 5000, "127.0.0.1", "b"),), user_is_default=True, control_access=("agent",),
    share=_SHARE, gpus=(_G,), strict=True, secrets=(("KEY", ""),), sealed_secrets="c2VhbGVk", upload="ab" * 32,
    scheduler_url="http://h:5000",
)  # fmt: skip
_NOTICE: Final = Notice(3, NoticeReason.RECLAIM, "ada is owed it", 1000.0, 1060.0, JobId("job-9"))
_TASK: Final = Task(
    TaskId("job-1.1"), AgentId("a1"), "job-1.1", JobId("job-1"), TaskState.LAUNCHED, 1000.0, gpus=(_G,),
    hostname="h1", sealed=True,
)  # fmt: skip
_MONITOR: Final = Task(
    TaskId("gpu-monitor.a1.1.1"), AgentId("a1"), "gpu-monitor.a1.1.1", None, TaskState.LAUNCHED, 1000.0, sealed=True
)  # fmt: skip
_SETTINGS: Final = Settings.of(
    "mesos-gpu-executor", "mesos-gpu-monitor", executor_env={"MESOS_GPU_MIG": "operator"}
)
_SPEC: Final = JobSpec("train", command="true", cpus=1.0, mem_mib=128, gpus=1, user="ada")
_SCALARS: Final = (Scalar("cpus", 1.0, '{"role":"*"}'),)
_SAID: Final = seal.Said("t-1", "TASK_RUNNING", 4, "hello", "", True, '{"noticed":3}')


@dataclass(frozen=True, slots=True)
class Message:
    """A kind of message: its content, its encoder, and its decoder, if it has one of its own."""

    noun: Any
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any] | None = None


def _task_info(task: Task, spec: JobSpec | None) -> bytes:
    info = to_task_info(LaunchTask(task, spec, _SCALARS, _SCALARS), _SETTINGS, key=b"k" * 32)
    return json.dumps(info, sort_keys=True).encode()


_A: Final = assignment
MESSAGES: Final[Mapping[str, Message]] = {
    "report": Message(_FULL, report.encode, report.decode),
    "report-of-a-host-without-gpus": Message(Inventory(isolation="cgroup2"), report.encode, report.decode),
    "assignment": Message(_PLAIN, _A.encode, _A.decode_assignment),
    "assignment-with-all": Message(_RICH, _A.encode, _A.decode_assignment),
    "outcome": Message(Outcome(exit_status=3), _A.encode, _A.decode_outcome),
    "outcome-with-all": Message(
        Outcome(None, 9, True, (_G,), "550", "check 1 failed", "CUDA 12.4 or newer"), _A.encode, _A.decode_outcome
    ),
    "notice": Message(
        _NOTICE, lambda each: notice.encode_notice(each, 30.0, NoticeSignal.SIGUSR1), notice.decode_notice
    ),
    "noticed": Message(3, notice.encode_told, notice.decode_told),
    "checkpoint": Message(12.5, notice.encode_checkpoint, notice.decode_checkpoint),
    "resize": Message(Resize(4, 1000, 2000, 500), resize.encode_request, resize.decode_request),
    "resized": Message(
        ResizeAnswer(4, 1000, 2000, 500, "in use", 1500, True), resize.encode_answer, resize.decode_answer
    ),
    "seal": Message(_SAID, lambda said: seal.seal("5e" * 16, said), seal.opened),
    "start": Message(None, lambda _: start_message()),
    "reset": Message(None, lambda _: reset_message(_G, "r-1")),
    "task-of-a-job": Message(None, lambda _: _task_info(_TASK, _SPEC)),
    "task-of-a-monitor": Message(None, lambda _: _task_info(_MONITOR, None)),
}  # fmt: skip


def main(directory: Path) -> None:
    """Write each message into a file of its name."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, message in MESSAGES.items():
        (directory / f"{name}.json").write_bytes(message.write(message.noun) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
