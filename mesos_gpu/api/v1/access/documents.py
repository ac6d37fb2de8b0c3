"""Routes of the access document: reading and replacing it, its versions, and questions about rights."""

from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access import giving
from mesos_gpu.access.decide import Rights
from mesos_gpu.access.rights import ACCESS_SEE, ACCESS_WRITE, RIGHTS
from mesos_gpu.access.roles import BUILT_IN
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, json_answer, valid
from mesos_gpu.api.http.requests import Flag, read_of, result_of
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.v1.access.checks import answer
from mesos_gpu.api.v1.documents import Documents, Versioned
from mesos_gpu.engine.access.document import READ_AGAIN
from mesos_gpu.engine.events import AccessChanged
from mesos_gpu.engine.versions import stale
from mesos_gpu.model.access.caller import Caller, Proof
from mesos_gpu.model.access.document import EVERYTHING, NO_DOCUMENT, AccessDocument
from mesos_gpu.wire.access import check, document
from mesos_gpu.wire.checking import Problem, object_of

FORCE: Final = Flag("force")


ACCESS: Final = Versioned(
    "/v1/access",
    "mesos-gpu access versions",
    lambda view: view.access_versions,
    NO_DOCUMENT,
    document.decode,
    document.encode,
    lambda each: {"roles": len(each.roles), "bindings": len(each.bindings)},
)


class AccessDocuments(Documents[AccessDocument]):
    """HTTP handlers of the routes below /v1/access."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        super().__init__(scheduler, ACCESS)

    async def show(self, _request: Request) -> Response:
        """GET /v1/access: the latest version."""
        return self.shown(self._scheduler.access)

    async def put(self, request: Request) -> Response:
        """PUT /v1/access: replace the document, if its latest version was read."""
        force, rights = FORCE.of(request), rights_of(request)
        new_document, expected = await self.asked(request)
        latest = self._scheduler.access
        if expected != latest.version or (not rights.is_open and rights.document is not latest):
            raise stale(latest.version, expected, READ_AGAIN)
        _check_reach(rights, latest, new_document, force=force)
        by = rights.caller.name
        now = await result_of(self._scheduler.request(AccessChanged(replace(new_document, by=by), expected)))
        note.about("access", str(now.version))
        return self.shown(now, {"warnings": _warnings(rights, now)})

    async def check(self, request: Request) -> Response:
        """POST /v1/access/check: whether a name may do something. Every caller may ask this about itself."""
        question = valid(check.decode(await read_of(request, object_of)))
        rights = rights_of(request)
        is_self = not question.name or (question.name == rights.caller.name and not question.groups)
        if not is_self:
            require(rights, ACCESS_SEE)
            whom = Caller(question.name, frozenset(question.groups), Proof.TOKEN)
            rights = Rights(self._scheduler.access, whom)
        return json_answer(answer(rights, question))

    async def rights(self, _request: Request) -> Response:
        """GET /v1/access/rights: all rights, and the built-in roles."""
        return json_answer(
            {
                "rights": [
                    {
                        "name": right.name,
                        "allows": right.allows,
                        "scope": right.scope.value,
                        "own": right.has_own,
                        "pattern": right.has_pattern,
                    }
                    for right in RIGHTS
                ],
                "roles": [document.encode_role(role) for role in BUILT_IN.values()],
            }
        )


def _check_reach(rights: Rights, old: AccessDocument, new: AccessDocument, *, force: bool) -> None:
    """Check that a document gives no one more than the caller has, and can still be changed by someone.

    Raises:
        Refusal: It gives more (403), or no one could change it (409).
    """
    beyond = giving.overreach(rights, old, new)
    if beyond:
        raise Refusal(
            403,
            "forbidden",
            "the document gives rights that you do not have yourself",
            remedy=rights.who_can_give(),
            problems=[Problem(*fault) for fault in beyond],
        )
    if not giving.givers(new) and not force and not rights.caller.local_admin:
        raise Refusal(
            409,
            "locked-out",
            f"with this document no user has the right {ACCESS_WRITE.name}, so that no one could change it again",
            remedy="bind the role admin to a name or a group; or use force=true: root on the scheduler's host can "
            "change it then",
        )


def _warnings(rights: Rights, now: AccessDocument) -> list[str]:
    """Return warnings about possible mistakes in a document."""
    warnings = [
        f"bindings/{index} lets every authenticated user change this document"
        for index in giving.givers(now)
        if EVERYTHING in now.bindings[index].names
    ]
    caller = rights.caller
    if rights.is_open:
        warnings.append("authentication is off: this document has no effect until it is set up")
    elif not Rights(now, caller).may(ACCESS_WRITE):
        warnings.append(f"{caller.shown} may not change it again")
    elif not giving.givers(now):
        warnings.append(
            "no user has the right access:write: only root on the scheduler's host can change it again"
        )
    return warnings
