"""What a scheduler of chaos has saved."""

from collections.abc import Iterable

from mesos_gpu.model import saves
from mesos_gpu.model.apps.catalog import AppCatalog, AppVersion, Deployment, RootVersion
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.tasks.task import Task


class Disk:
    """A store in memory: what was committed, and nothing else."""

    def __init__(self) -> None:
        """Empty."""
        self.framework_id: str | None = None
        self.jobs: dict[JobId, Job] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.nodes: dict[AgentId, Node] = {}
        self.drains: dict[tuple[Target, str], Drain] = {}
        self.cards: dict[GpuId, Card] = {}
        self.catalog = AppCatalog()
        self.app_versions: list[AppVersion] = []
        self.roots: list[RootVersion] = []
        self.deployments: dict[str, Deployment] = {}

    def save(self, batch: Iterable[Save]) -> None:
        """Commit all of it."""
        for save in batch:
            self._save(save)

    def close(self) -> None:
        """Nothing is held open."""

    def _save(self, save: Save) -> None:
        match save:
            case saves.SaveJob(job):
                self.jobs[job.id] = job
            case saves.SaveTask(task):
                self.tasks[task.id] = task
            case saves.SaveNode(node):
                self.nodes[node.id] = node
            case saves.SaveCard(card):
                self.cards[card.id] = card
            case saves.SaveDrain(drain):
                self.drains[drain.target, drain.name] = drain
            case saves.ForgetJob(job_id):
                del self.jobs[job_id]
                for task_id in [task.id for task in self.tasks.values() if task.job_id == job_id]:
                    del self.tasks[task_id]
            case saves.ForgetTask(task_id):
                del self.tasks[task_id]
            case saves.ForgetNode(agent_id):
                del self.nodes[agent_id]
            case saves.ForgetDrain(target, name):
                del self.drains[target, name]
            case _:
                self._save_rest(save)

    def _save_rest(self, save: Save) -> None:
        match save:
            case saves.SaveFramework(framework_id):
                self.framework_id = framework_id
            case saves.SaveServices(catalog):
                self.catalog = catalog
            case saves.SaveAppVersion(app_version):
                self.app_versions.append(app_version)
            case saves.SaveRootVersion(root):
                self.roots.append(root)
            case saves.ForgetRootVersion(version):
                self.roots = [each for each in self.roots if each.version != version]
            case saves.ForgetAppVersion(app_id, version):
                self.app_versions = [
                    v for v in self.app_versions if (v.app.id, v.version) != (app_id, version)
                ]
            case saves.SaveDeployment(deployment):
                self.deployments[deployment.id] = deployment
            case saves.ForgetDeployment(id):
                self.deployments.pop(id, None)

    def load(self) -> Saved:
        """Load as a store does: jobs by their sequence, tasks by their launch."""
        return Saved(
            self.framework_id,
            tuple(sorted(self.jobs.values(), key=lambda job: job.sequence)),
            tuple(sorted(self.tasks.values(), key=lambda task: task.launched_at)),
            tuple(self.nodes.values()),
            tuple(self.drains.values()),
            tuple(self.cards.values()),
            self.catalog,
            tuple(self.app_versions),
            tuple(self.deployments.values()),
            roots=tuple(self.roots),
        )
