"""Errors that a scheduler answers, of its own interface and of Marathon's. Only an answer that is one needs this."""

from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import requests

from mesos_gpu.api.spec.shapes import Problem
from mesos_gpu.cli.locate import REMEDY
from mesos_gpu.cli.reach.failures import BadAnswer, Unreachable
from mesos_gpu.cli.reach.refusals import Refused, not_ours
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.addresses import is_loopback_host
from mesos_gpu.wire.marathon.problems import INVALID_JSON, NOT_VALID

_LOGIN: Final = "log in: mesos-gpu login; programs name a token with MESOS_GPU_TOKEN or MESOS_GPU_TOKEN_FILE"
_REMEDIES: Final = {  # where Marathon's interface says none
    404: "see what there is with `mesos-gpu app list`",
    409: "change what is there with `mesos-gpu app update`, or take another id",
    422: "correct what is listed; docs/reference/marathon.md",
}
_PLAY: Final = {  # the codes that Marathon has for types, in words
    "error.path.missing": "is missing",
    "error.expected.jsstring": "must be a string",
    "error.expected.jsnumber": "must be a number",
    "error.expected.int": "must be a whole number",
    "error.expected.jsboolean": "must be true or false",
    "error.expected.jsarray": "must be a list",
    "error.expected.jsobject": "must be an object",
    "error.unknown.enum.literal": "is no allowed value",
}
_LOOK_S: Final = 5.0  # for each answer of a server that is not a scheduler
_FRAMEWORK: Final = (
    "mesos_gpu"  # name of the scheduler's framework, unless `scheduler --name` gives another one
)
_OF_DEFINITION: Final = (INVALID_JSON, NOT_VALID)  # messages of Marathon whose details say what is wrong
_WHOLE_GPUS: Final = "; for whole GPUs write gpus instead, as a number"


class Said(msgspec.Struct):
    """An error: its code, its message, what to do, and the problems of fields."""

    code: str
    message: str
    remedy: str | None = None
    problems: list[Problem] | None = None


class _Failure(msgspec.Struct):
    error: Said


class _Named(msgspec.Struct):
    id: str


class _Detail(msgspec.Struct):
    path: str
    errors: list[str]


class _MarathonFailure(msgspec.Struct):
    """The failure of a route below /v2."""

    message: str
    details: str | list[_Detail] | None = None
    deployments: list[_Named] = []  # that lock an app
    remedy: str | None = None


def said(response: requests.Response) -> Said:
    """Return the error of an answer.

    Raises:
        msgspec.DecodeError: The answer is no error of a scheduler.
    """
    if "/v2/" not in urlsplit(response.url).path:
        return msgspec.json.decode(response.content, type=_Failure).error
    failure = msgspec.json.decode(response.content, type=_MarathonFailure)
    what, details = failure.message, failure.details
    if isinstance(details, str):
        what = f"{what}: {details}"
    problems: list[Problem] = [
        {
            "path": each.path,
            "reason": _PLAY.get(why, why) + (_WHOLE_GPUS if each.path.endswith("/gpu") else ""),
        }
        for each in (details if isinstance(details, list) else ())
        for why in each.errors
    ]
    if problems and what in _OF_DEFINITION:
        what = "the definition is not valid"
    if failure.deployments:
        ids = [each.id for each in failure.deployments]
        what = f"locked by deployment {', '.join(ids)}"
        remedy = (
            f"wait for its end (mesos-gpu deployment show {ids[0]}), undo it (mesos-gpu deployment stop {ids[0]}), "
            "or end it where it is with --force"
        )
    else:
        remedy = failure.remedy or _REMEDIES.get(response.status_code, "")
    code = "unavailable" if response.status_code == 503 else "refused"
    return Said(code, what, remedy, problems)


def error_of(response: requests.Response, url: str) -> MesosGpuError:
    """Return what an answer means that is not a success; `url` is the address of the scheduler."""
    try:
        error = said(response)
    except msgspec.DecodeError:
        if response.content.startswith(b"This port speaks HTTPS"):
            return not_ours(url, f"it speaks https; name it as {url.replace('http', 'https', 1)}")
        if response.status_code in (502, 503, 504):  # a proxy whose scheduler is away
            return Unreachable(
                f"the scheduler at {url} does not answer ({response.status_code})", remedy=REMEDY
            )
        return _of_mesos(url) or not_ours(url, f"it says {response.status_code} {response.reason}")
    if error.code == "unavailable" and "/logs" not in (response.url or ""):
        return Unreachable(error.message, remedy=error.remedy or REMEDY)
    has_proof = "Authorization" in response.request.headers  # then the proof is wrong, or the error says more
    remedy = _LOGIN if response.status_code == 401 and not has_proof else error.remedy or ""
    return Refused(response.status_code, error.code, error.message, remedy, error.problems or [])


def _of_mesos(url: str) -> BadAnswer | None:
    """Return the error for the address of a Mesos master or agent; None if no Mesos answers there."""
    with requests.Session() as session:
        session.trust_env = not is_loopback_host(urlsplit(url).hostname or "")
        about = _looked_up(session, f"{url}/version")
        if not {"version", "build_time"} <= about.keys():
            return None
        listed = _looked_up(session, f"{url}/master/frameworks")
        is_master = "frameworks" in listed or _looked_up(session, f"{url}/master/health") == {"": True}
    what = f"what answers at {url} is a Mesos {'master' if is_master else 'agent'} ({about['version']})"
    places = [
        f"framework {each['name']} is at {each['webui_url']}"
        for each in listed.get("frameworks", ())
        if each.get("name") == _FRAMEWORK and each.get("webui_url")
    ]
    where = "; ".join(places) or (
        "the page of the master links to it under Frameworks; "
        "without one, start it: mesos-gpu scheduler --master HOST:PORT --state FILE"
    )
    return BadAnswer(
        f"{what}, not a mesos-gpu scheduler",
        remedy=f"name the scheduler's own address with --url or MESOS_GPU_URL: {where}",
    )


def _looked_up(session: requests.Session, url: str) -> dict[str, Any]:
    """Return the object that a server answers; {"": True} for an empty answer, and {} if it answers anything else."""
    with suppress(requests.RequestException, msgspec.DecodeError):
        answer = session.get(url, timeout=_LOOK_S, allow_redirects=False)
        if answer.status_code == 200:
            return msgspec.json.decode(answer.content, type=dict[str, Any]) if answer.content else {"": True}
    return {}
