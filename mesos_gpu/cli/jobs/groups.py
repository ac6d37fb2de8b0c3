"""Groups of the options of `mesos-gpu run` in its --help."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from mesos_gpu.scheduler.options.section import GroupedOptions

#: Flags of options by the titles of their groups.
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "Resources of each task": (
        "--cpus", "--cpu-limit", "--mem", "--disk", "--gpus", "--gpu-model", "--gpu-memory", "--compute-capability",
        "--min-driver", "--port",
    ),
    "A part of a GPU": ("--gpu-compute", "--gpu-memory-max", "--gpu-isolation"),
    "Several tasks": ("--tasks", "--on-member-failure", "--array"),
    "Environment": (
        "--upload", "--image", "--image-secret", "--pull", "--container-engine", "--env", "--secret", "--fetch",
        "--volume", "--user", "--control-access", "--shell",
    ),
    "Queue and time": (
        "--queue", "--class", "--priority", "--preemptible", "--notice", "--notice-signal", "--timeout",
        "--max-attempts", "--on-gpu-failure", "--booking",
    ),
    "Nodes": ("--placement", "--constraint", "--topology", "--segment", "--app", "--near", "--away"),
    "Name and notification": ("--name", "--label", "--notify"),
}  # fmt: skip


class Grouped(GroupedOptions):
    """A command with the options of a job, shown in groups."""

    groups: ClassVar = GROUPS
