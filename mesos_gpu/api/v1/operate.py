"""Routes of GPUs and nodes: their state, and drains and resets by operators."""

from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.asking import new_reset
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import invalid, json_answer, valid
from mesos_gpu.api.http.requests import read_of, result_of
from mesos_gpu.api.http.rights import caller_of
from mesos_gpu.api.kept import Kept
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.spec.gpus.use import UseOverTime
from mesos_gpu.api.v1 import views
from mesos_gpu.api.v1.cards import CardMap
from mesos_gpu.api.v1.cluster import nodes
from mesos_gpu.api.v1.gpus.use import cluster_use, is_metered, over_time
from mesos_gpu.api.v1.listing import of_nodes
from mesos_gpu.api.v1.names import gpu_of, host_of
from mesos_gpu.engine.events import DrainRequested, UndrainRequested
from mesos_gpu.engine.reading.nodes import gpu_status, gpu_statuses
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.wire.mesos import operations


class GpuNodeHandlers:
    """HTTP handlers of GPUs and nodes.

    Args:
        cards: Cache of the map of all GPUs, which drains and resets change.
    """

    def __init__(self, scheduler: SchedulerApi, cards: Kept[CardMap]) -> None:
        self._scheduler, self._cards = scheduler, cards
        self._listed = Kept(nodes.all_nodes)

    async def gpus(self, request: Request) -> Response:
        """GET /v1/gpus: list GPUs."""
        sight, part = Sight.of(request), nodes.Part.of(request)
        on = of_nodes(request) if "node" in request.query_params else None
        return json_answer(
            await result_of(self._scheduler.read_copy(lambda view: nodes.cards(view, on, part, sight)))
        )

    async def gpu(self, request: Request) -> Response:
        """GET /v1/gpus/{id}: a GPU with its history."""
        return await self._shown(request, _id(request))

    async def gpu_use(self, request: Request) -> Response:
        """GET /v1/gpus/{id}/use: the recent utilization of a GPU."""
        gpu_id = await self._gpu_id(_id(request))
        return json_answer(
            await result_of(
                self._scheduler.read(lambda view: over_time(view, [view.use_history.cards.get(gpu_id)]))
            )
        )

    async def use(self, _request: Request) -> Response:
        """GET /v1/use: the utilization of all GPUs in the last day."""
        return json_answer(await result_of(self._scheduler.read(cluster_use)))

    async def drain_gpu(self, request: Request) -> Response:
        """POST /v1/gpus/{id}/drain: drain a GPU."""
        operation = await _operation(request, deadline=True)
        gpu_id = await self._gpu_id(_id(request))
        await result_of(
            self._scheduler.request(
                DrainRequested(
                    Target.GPU, gpu_id, operation.reason, by=operation.by, deadline_s=operation.deadline_s
                )
            )
        )
        self._forget_lists()
        return await self._gpus_shown(request, gpu_id)

    async def undrain_gpu(self, request: Request) -> Response:
        """DELETE /v1/gpus/{id}/drain: end the drain of a GPU."""
        gpu_id = await self._gpu_id(_id(request))
        await result_of(self._scheduler.request(UndrainRequested(Target.GPU, gpu_id, by=_by(request))))
        self._forget_lists()
        return await self._gpus_shown(request, gpu_id)

    async def reset_gpu(self, request: Request) -> Response:
        """POST /v1/gpus/{id}/reset: request a reset; 202, as the node carries it out later."""
        operation = await _operation(request, deadline=False)
        gpu_id = await self._gpu_id(_id(request))
        await result_of(self._scheduler.request(new_reset(gpu_id, operation.reason, by=operation.by)))
        self._forget_lists()
        return await self._shown(request, gpu_id, 202)

    async def nodes(self, request: Request) -> Response:
        """GET /v1/nodes: list nodes."""
        listing = nodes.NodeListing.of(request)
        return json_answer(
            await result_of(self._scheduler.read_copy(lambda view: listing.select(view, self._listed.of)))
        )

    async def node(self, request: Request) -> Response:
        """GET /v1/nodes/{id}: the agents of a host."""
        node_name = _id(request)
        agents = await result_of(
            self._scheduler.read_copy(lambda view: nodes.all_nodes(view, host_of(view, node_name)))
        )
        if not agents:  # known only from its drain
            raise NotFound(f"there is no node {node_name}", remedy="list the nodes with: mesos-gpu nodes")
        return json_answer({"nodes": agents})

    async def node_use(self, request: Request) -> Response:
        """GET /v1/nodes/{id}/use: the recent utilization of a host's GPUs."""
        node_name = _id(request)

        def read(view: View) -> UseOverTime:
            here = gpu_statuses(view, host_of(view, node_name).__eq__)
            metered = [status.gpu.id for status in here if is_metered(status.node, status.gpu.id)]
            return over_time(view, [view.use_history.cards.get(gpu_id) for gpu_id in metered])

        return json_answer(await result_of(self._scheduler.read(read)))

    async def drain_node(self, request: Request) -> Response:
        """POST /v1/nodes/{id}/drain: drain a node."""
        operation = await _operation(request, deadline=True)
        hostname = await self._hostname(_id(request))
        await result_of(
            self._scheduler.request(
                DrainRequested(
                    Target.NODE, hostname, operation.reason, by=operation.by, deadline_s=operation.deadline_s
                )
            )
        )
        self._forget_lists()
        return await self._node_shown(hostname)

    async def undrain_node(self, request: Request) -> Response:
        """DELETE /v1/nodes/{id}/drain: end the drain of a node."""
        hostname = await self._hostname(_id(request))
        await result_of(self._scheduler.request(UndrainRequested(Target.NODE, hostname, by=_by(request))))
        self._forget_lists()
        return await self._node_shown(hostname)

    async def _gpu_id(self, wanted: str) -> GpuId:
        gpu_id = await result_of(self._scheduler.read_copy(lambda view: gpu_of(view, wanted)))
        note.about("gpu", gpu_id)
        return gpu_id

    async def _hostname(self, wanted: str) -> str:
        hostname = await result_of(self._scheduler.read(lambda view: host_of(view, wanted)))
        note.about("node", hostname)
        return hostname

    def _forget_lists(self) -> None:
        self._listed.forget()
        self._cards.forget()

    async def _shown(self, request: Request, wanted: str, status: int = 200) -> Response:
        """Answer with a GPU and its history."""
        sight = Sight.of(request)

        def show(view: View) -> shapes.GpuWithHistory:
            gpu_id = gpu_of(view, wanted)
            status = gpu_status(view, gpu_id)
            if status is None:  # known only from its drain
                raise NotFound(f"there is no GPU {wanted}", remedy="list the GPUs with: mesos-gpu gpus")
            return views.gpu_with_history(view, status, sight)

        return json_answer(await result_of(self._scheduler.read_copy(show)), status)

    async def _gpus_shown(self, request: Request, gpu_id: GpuId) -> Response:
        sight = Sight.of(request)

        def read(view: View) -> list[shapes.Gpu]:
            status = gpu_status(view, gpu_id)
            return [] if status is None else [views.gpu(view, status, sight)]

        return json_answer({"gpus": await result_of(self._scheduler.read(read))})

    async def _node_shown(self, hostname: str) -> Response:
        return json_answer(
            {
                "nodes": await result_of(
                    self._scheduler.read_copy(lambda view: nodes.all_nodes(view, hostname))
                )
            }
        )


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _operator(request: Request, said: str) -> str:
    """Return the name of the operator: the caller's proved name, else the name in the request."""
    return caller_of(request).name or said


def _by(request: Request) -> str:
    """Return the name of the operator for a request without a body.

    Raises:
        Refusal: The name is not valid.
    """
    by = _operator(request, request.query_params.get("by", ""))
    problem = operations.by_problem(by)
    if problem:
        raise invalid(problem)
    return by


async def _operation(request: Request, *, deadline: bool) -> operations.Request:
    """Return the drain or reset in a body.

    Raises:
        Refusal: The body is not valid.
    """
    operation = valid(await read_of(request, partial(operations.decode, deadline=deadline)))
    return replace(operation, by=_operator(request, operation.by))
