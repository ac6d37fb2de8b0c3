"""Parsing of error answers of the scheduler's own and Marathon's interface; imported only for errors."""

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

_LOGIN: Final = "log in with mesos-gpu login; programs use a token in MESOS_GPU_TOKEN or MESOS_GPU_TOKEN_FILE"
_REMEDIES: Final = {  # for errors of Marathon's interface without one
    404: "list existing apps with `mesos-gpu app list`",
    409: "change the existing app with `mesos-gpu app update`, or choose another id",
    422: "correct the listed fields; docs/reference/marathon.md",
}
_PLAY: Final = {  # texts of Marathon's codes for type errors
    "error.path.missing": "is missing",
    "error.expected.jsstring": "must be a string",
    "error.expected.jsnumber": "must be a number",
    "error.expected.int": "must be a whole number",
    "error.expected.jsboolean": "must be true or false",
    "error.expected.jsarray": "must be a list",
    "error.expected.jsobject": "must be an object",
    "error.unknown.enum.literal": "is not an allowed value",
}
_LOOK_S: Final = 5.0  # timeout of requests to a server that is not a scheduler
_FRAMEWORK: Final = "mesos_gpu"  # default name of the scheduler's framework (`scheduler --name`)
_OF_DEFINITION: Final = (INVALID_JSON, NOT_VALID)  # Marathon's messages whose details contain the reasons
_WHOLE_GPUS: Final = "; for whole GPUs write gpus instead, as a number"


class Said(msgspec.Struct):
    """An error: its code, message, remedy, and problems of fields."""

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
    """An error of a route below /v2."""

    message: str
    details: str | list[_Detail] | None = None
    deployments: list[_Named] = []  # deployments that lock an app
    remedy: str | None = None


def said(response: requests.Response) -> Said:
    """Return the error in an answer.

    Raises:
        msgspec.DecodeError: The answer does not contain an error of a scheduler.
    """
    if "/v2/" not in urlsplit(response.url).path:
        return msgspec.json.decode(response.content, type=_Failure).error
    failure = msgspec.json.decode(response.content, type=_MarathonFailure)
    what, details = failure.message, failure.details
    if isinstance(details, str):
        what = f"{what}: {details}"
    problems: list[Problem] = [
        {
            "path": detail.path,
            "reason": _PLAY.get(why, why) + (_WHOLE_GPUS if detail.path.endswith("/gpu") else ""),
        }
        for detail in (details if isinstance(details, list) else ())
        for why in detail.errors
    ]
    if problems and what in _OF_DEFINITION:
        what = "the definition is not valid"
    if failure.deployments:
        ids = [deployment.id for deployment in failure.deployments]
        what = f"locked by deployment {', '.join(ids)}"
        remedy = (
            f"wait for its end (mesos-gpu deployment show {ids[0]}), undo it (mesos-gpu deployment stop {ids[0]}), "
            "or abort it with --force"
        )
    else:
        remedy = failure.remedy or _REMEDIES.get(response.status_code, "")
    code = "unavailable" if response.status_code == 503 else "refused"
    return Said(code, what, remedy, problems)


def error_of(response: requests.Response, url: str) -> MesosGpuError:
    """Return the exception for an answer that is not a success; `url` is the scheduler's address."""
    try:
        error = said(response)
    except msgspec.DecodeError:
        if response.content.startswith(b"This port speaks HTTPS"):
            return not_ours(url, f"it uses https; use the address {url.replace('http', 'https', 1)}")
        if response.status_code in (502, 503, 504):  # a proxy whose scheduler does not answer
            return Unreachable(
                f"the scheduler at {url} does not answer ({response.status_code})", remedy=REMEDY
            )
        return _of_mesos(url) or not_ours(url, f"it answers {response.status_code} {response.reason}")
    if error.code == "unavailable" and "/logs" not in (response.url or ""):
        return Unreachable(error.message, remedy=error.remedy or REMEDY)
    # Then the credentials are wrong, or the error has details.
    has_proof = "Authorization" in response.request.headers
    remedy = _LOGIN if response.status_code == 401 and not has_proof else error.remedy or ""
    return Refused(response.status_code, error.code, error.message, remedy, error.problems or [])


def _of_mesos(url: str) -> BadAnswer | None:
    """Return the error if a Mesos master or agent answers at the address; None if not."""
    with requests.Session() as session:
        session.trust_env = not is_loopback_host(urlsplit(url).hostname or "")
        about = _looked_up(session, f"{url}/version")
        if not {"version", "build_time"} <= about.keys():
            return None
        listed = _looked_up(session, f"{url}/master/frameworks")
        is_master = "frameworks" in listed or _looked_up(session, f"{url}/master/health") == {"": True}
    what = f"the server at {url} is a Mesos {'master' if is_master else 'agent'} ({about['version']})"
    places = [
        f"framework {framework['name']} is at {framework['webui_url']}"
        for framework in listed.get("frameworks", ())
        if framework.get("name") == _FRAMEWORK and framework.get("webui_url")
    ]
    where = "; ".join(places) or (
        "the page of the master links to it under Frameworks; "
        "without one, start it: mesos-gpu scheduler --master HOST:PORT --state FILE"
    )
    return BadAnswer(
        f"{what}, not a mesos-gpu scheduler",
        remedy=f"give the scheduler's own address with --url or MESOS_GPU_URL: {where}",
    )


def _looked_up(session: requests.Session, url: str) -> dict[str, Any]:
    """Return the object in a server's answer; {"": True} for an empty answer, {} for any other."""
    with suppress(requests.RequestException, msgspec.DecodeError):
        answer = session.get(url, timeout=_LOOK_S, allow_redirects=False)
        if answer.status_code == 200:
            return msgspec.json.decode(answer.content, type=dict[str, Any]) if answer.content else {"": True}
    return {}
