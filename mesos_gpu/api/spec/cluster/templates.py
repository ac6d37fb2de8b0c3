"""What the routes of templates take and answer, as types, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.wire.checking import MAX_ENTRIES
from mesos_gpu.wire.marathon.template import KINDS

Value = str | float | list[str] | None


class TemplateParameter(TypedDict):
    """A value of a template that is meant to change."""

    type: Annotated[str, says(enum=[*KINDS])]
    default: Annotated[Value, says(description="null: nothing stands there, or it is required")]
    required: bool
    secret: Annotated[bool, says(description="forms do not show what is written into it")]
    example: Annotated[Value, says(description="of one that is required")]
    description: str
    paths: Annotated[list[str], says(description="JSON pointers to its places in the definition")]


class Template(TypedDict):
    """A template; route: where the definition that comes of it is sent to, by POST."""

    name: str
    kind: Annotated[str, says(enum=["app", "group"])]
    about: str
    notes: list[str]
    route: Annotated[str, says(enum=["/v2/apps", "/v2/groups"])]
    parameters: dict[str, TemplateParameter]


class Templates(TypedDict):
    """The templates, by name."""

    templates: list[Template]


class TemplateRequest(TypedDict, total=False):
    """Values of parameters, by their names; those that are left out keep their defaults."""

    values: Annotated[
        dict[str, str] | None, says(maxProperties=MAX_ENTRIES, description="as texts; a list has commas")
    ]


class Rendered(TypedDict):
    """A definition for Marathon's interface, and where it is to be sent by POST."""

    route: Annotated[str, says(enum=["/v2/apps", "/v2/groups"])]
    document: dict[str, Any]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/templates"): Operation(
        "list_templates", "Apps and groups to start from, and what can be set", {200: Templates}
    ),
    ("POST", "/v1/templates/{name}/render"): Operation(
        "render_template",
        "A template with values of one's own, checked as Marathon would; nothing is started",
        {200: Rendered},
        body=TemplateRequest,
        example={"values": {"gpus": "2", "gpu_models": "A100,H100"}},
    ),
}
