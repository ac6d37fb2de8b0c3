"""Routes of named volumes of jobs, which their owners list and remove."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights
from mesos_gpu.access.rights import JOB_KILL, JOB_READ
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import Flag, result_of
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.spec.tasks import volumes as spec
from mesos_gpu.engine.events import VolumeRemoved
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.reading.volumes import limit_of_volumes_mib, named_volumes
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.volume import VOLUME_NAME, PersistentVolume
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.mounts import NAME_FORM

ALL_USERS: Final = Flag("all_users")
_LIST: Final = "list them with: mesos-gpu storage list"


class NamedVolumes:
    """HTTP handlers of named volumes."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def list(self, request: Request) -> Response:
        """GET /v1/volumes: list the caller's volumes, or those of all owners."""
        rights, all_users = rights_of(request), ALL_USERS.of(request)
        if all_users:
            require(rights, JOB_READ)  # names of volumes are a part of what jobs run
        owner = None if all_users or rights.is_open else rights.caller.name

        def look(view: View) -> spec.NamedVolumes:
            visible = [_shown(*entry) for entry in named_volumes(view) if owner in (None, entry[0].owner)]
            return {"volumes": visible, "owner_limit_mib": limit_of_volumes_mib(view)}

        return json_answer(await result_of(self._scheduler.read(look)))

    async def remove(self, request: Request) -> Response:
        """DELETE /v1/volumes/{name}: remove a volume from its host."""
        rights, name = rights_of(request), str(request.path_params["name"])
        if not VOLUME_NAME.fullmatch(name):
            raise invalid(Problem("/name", f"must be {NAME_FORM}, got {name[:80]!r}"))
        user = request.query_params.get("user")
        if user is not None and user != rights.caller.name:
            require(rights, JOB_KILL)
        volume = await result_of(self._scheduler.read(lambda view: _to_remove(view, rights, name, user)))
        note.about("volume", f"{volume.owner}/{name}")
        await result_of(self._scheduler.request(VolumeRemoved(volume.owner, name)))
        return json_answer(_shown(volume, (), removing=True), 202)


def _to_remove(view: View, rights: Rights, name: str, user: str | None) -> PersistentVolume:
    """Return the volume that a request names.

    Raises:
        NotFound: The owner has no such volume.
        Conflict: Authentication is off, and several owners have such a volume.
    """
    named = [volume for volume, _ in named_volumes(view) if volume.name == name and not volume.unwanted]
    if user is not None or not rights.is_open:
        owner = rights.caller.name if user is None else user
        named = [volume for volume in named if volume.owner == owner]
    if not named:
        raise NotFound(f"there is no volume {name}{f' of {user}' if user else ''}", remedy=_LIST)
    if len(named) > 1:
        owners = ", ".join(volume.owner or "the default user" for volume in named)
        raise Conflict(f"{owners} have a volume {name}", remedy="name the owner with user=NAME (--user NAME)")
    return named[0]


def _shown(volume: PersistentVolume, jobs: Sequence[JobId], *, removing: bool = False) -> spec.NamedVolume:
    return {
        "id": volume.id,
        "name": volume.name,
        "owner": volume.owner,
        "user": volume.user,
        "size_mib": volume.size_mib,
        "hostname": volume.hostname or None,
        "jobs": [*jobs],
        "created_at": volume.made_at,
        "used_at": volume.used_at or None,
        "removing": volume.unwanted or removing,
    }
