"""Types of requests and answers about templates, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.wire.checking import MAX_ENTRIES
from mesos_gpu.wire.marathon.template import KINDS

Value = str | float | list[str] | None


class TemplateParameter(TypedDict):
    """A parameter of a template."""

    type: Annotated[str, says(enum=[*KINDS])]
    default: Annotated[Value, says(description="null: no default, or a required parameter")]
    required: bool
    secret: Annotated[bool, says(description="whether forms should hide the input")]
    example: Annotated[Value, says(description="example of a required value")]
    description: str
    paths: Annotated[
        list[str], says(description="JSON pointers to the places of the value in the definition")
    ]


class Template(TypedDict):
    """A template. route: path to which the rendered definition is sent by POST."""

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
    """Values of parameters by name; parameters that are left out keep their defaults."""

    values: Annotated[
        dict[str, str] | None,
        says(
            maxProperties=MAX_ENTRIES, description="values as text; items of a list are separated by commas"
        ),
    ]


class Rendered(TypedDict):
    """A definition for Marathon's interface, and the path to which it is sent by POST."""

    route: Annotated[str, says(enum=["/v2/apps", "/v2/groups"])]
    document: dict[str, Any]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/templates"): Operation(
        "list_templates", "List templates of apps and groups, with their parameters", {200: Templates}
    ),
    ("POST", "/v1/templates/{name}/render"): Operation(
        "render_template",
        "Render a template with the given values, and check it as a definition; nothing is started",
        {200: Rendered},
        body=TemplateRequest,
        example={"values": {"gpus": "2", "gpu_models": "A100,H100"}},
    ),
}
