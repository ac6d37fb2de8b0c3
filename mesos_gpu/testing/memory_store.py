"""A store in memory: `simulate chaos` judges by it, and tests run a scheduler on it."""

from collections.abc import Iterable

from mesos_gpu.model import saves
from mesos_gpu.model.apps.service import AppVersion, Deployment, RootVersion, Services
from mesos_gpu.model.apps.split import Split
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.drain import Card, Drain, Target
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.tasks.task import Task


class MemoryStore:
    """`Store`: what was committed, and nothing else."""

    def __init__(self, saved: Saved | None = None) -> None:
        """With what an earlier run left; None: nothing."""
        given = saved or Saved(None, (), (), ())
        self.framework_id: str | None = given.framework_id
        self.doubtful = given.doubtful
        self.jobs: dict[JobId, Job] = {job.id: job for job in given.jobs}
        self.tasks: dict[TaskId, Task] = {task.id: task for task in given.tasks}
        self.nodes: dict[AgentId, Node] = {node.id: node for node in given.nodes}
        self.drains: dict[tuple[Target, str], Drain] = {
            (each.target, each.name): each for each in given.drains
        }
        self.cards: dict[GpuId, Card] = {card.id: card for card in given.cards}
        self.services: Services = given.services
        self.app_versions: dict[tuple[str, float], AppVersion] = {
            (each.app.id, each.version): each for each in given.app_versions
        }
        self.roots: dict[float, RootVersion] = {root.version: root for root in given.roots}
        self.deployments: dict[str, Deployment] = {each.id: each for each in given.deployments}
        self.splits: dict[str, Split] = {split.name: split for split in given.splits}

    def save(self, batch: Iterable[Save]) -> None:
        """Commit all of it; nothing, if the batch cannot be read to its end."""
        for item in tuple(batch):
            self._save(item)

    def close(self) -> None:
        """Nothing is held open."""

    def _save(self, item: Save) -> None:
        match item:
            case saves.SaveFramework(framework_id):
                self.framework_id = framework_id
            case saves.SaveTrust():
                self.doubtful = False
            case saves.SaveJob(job):
                self.jobs[job.id] = job
            case saves.ForgetJob(job_id):
                self.jobs.pop(job_id, None)
                for task_id in [task.id for task in self.tasks.values() if task.job_id == job_id]:
                    del self.tasks[task_id]
            case saves.SaveTask(task):
                self.tasks[task.id] = task
            case saves.ForgetTask(task_id):
                self.tasks.pop(task_id, None)
            case _:
                self._save_of_nodes(item)

    def _save_of_nodes(self, item: Save) -> None:
        match item:
            case saves.SaveNode(node):
                self.nodes[node.id] = node
            case saves.ForgetNode(agent_id):
                self.nodes.pop(agent_id, None)
            case saves.SaveCard(card):
                self.cards[card.id] = card
            case saves.SaveDrain(drain):
                self.drains[drain.target, drain.name] = drain
            case saves.ForgetDrain(target, name):
                self.drains.pop((target, name), None)
            case _:
                self._save_of_apps(item)

    def _save_of_apps(self, item: Save) -> None:
        match item:
            case saves.SaveServices(services):
                self.services = services
            case saves.SaveAppVersion(version):
                self.app_versions[version.app.id, version.version] = version
            case saves.ForgetAppVersion(app_id, number):
                self.app_versions.pop((app_id, number), None)
            case saves.SaveRootVersion(root):
                self.roots[root.version] = root
            case saves.ForgetRootVersion(number):
                self.roots.pop(number, None)
            case saves.SaveDeployment(deployment):
                self.deployments[deployment.id] = deployment
            case saves.ForgetDeployment(id):
                self.deployments.pop(id, None)
            case saves.SaveSplit(split):
                self.splits[split.name] = split
            case saves.ForgetSplit(name):
                self.splits.pop(name, None)

    def load(self) -> Saved:
        """Everything, in the order that `Store` promises."""
        return Saved(
            framework_id=self.framework_id,
            doubtful=self.doubtful,
            jobs=tuple(sorted(self.jobs.values(), key=lambda job: (job.sequence, job.id))),
            tasks=tuple(sorted(self.tasks.values(), key=lambda task: (task.launched_at, task.id))),
            nodes=tuple(node for _, node in sorted(self.nodes.items())),
            drains=tuple(sorted(self.drains.values(), key=lambda each: (each.target.value, each.name))),
            cards=tuple(card for _, card in sorted(self.cards.items())),
            services=self.services,
            app_versions=tuple(version for _, version in sorted(self.app_versions.items())),
            deployments=tuple(sorted(self.deployments.values(), key=lambda each: (each.version, each.id))),
            splits=tuple(split for _, split in sorted(self.splits.items())),
            roots=tuple(root for _, root in sorted(self.roots.items())),
        )
