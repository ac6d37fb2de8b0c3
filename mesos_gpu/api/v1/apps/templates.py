"""Routes of templates of apps and groups. Rendered definitions are created with Marathon's interface, as all others."""

import re
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.adapters.files.templates import load, load_all
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import read_of
from mesos_gpu.api.spec.cluster import templates as shapes
from mesos_gpu.wire.checking import Check, object_of
from mesos_gpu.wire.marathon.template import WrongValues, described, render

_VALUES: Final = "values"
_NAME: Final = re.compile(r"[^\s=\0]+")


class TemplateHandlers:
    """HTTP handlers of templates. Files are read and definitions checked on other threads than the event loop's."""

    async def list(self, _request: Request) -> Response:
        """GET /v1/templates: list templates."""
        templates = await run_in_threadpool(load_all)
        return json_answer({"templates": [described(template) for template in templates]})

    async def render(self, request: Request) -> Response:
        """POST /v1/templates/{name}/render: a definition with the given values."""
        values = await read_of(request, _values)
        return json_answer(await run_in_threadpool(_rendered, str(request.path_params["name"]), values))


def _values(body: bytes) -> dict[str, str]:
    check = Check(object_of(body), (_VALUES,))
    values = check.strings(_VALUES, _NAME, "blanks and =")
    if check.problems:
        raise invalid(*check.problems)
    return values


def _rendered(name: str, values: dict[str, str]) -> shapes.Rendered:
    """Return a definition with the given values.

    Raises:
        NotFound: There is no such template.
        Refusal: Values are not valid (422, with all faults).
    """
    template = load(name)
    try:
        return {"route": template.route, "document": render(template, values)}
    except WrongValues as error:
        problems = [problem for fault in error.faults for problem in fault.problems(f"/{_VALUES}")]
        raise invalid(*problems) from None
