"""What the routes of webhooks take and answer, as types."""

from collections.abc import Mapping
from typing import Annotated, Final, Required, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.tasks.event import EventKind

Kind = Annotated[str, one_of(*EventKind)]


class WebhookRequest(TypedDict, total=False):
    """A webhook as it shall be."""

    url: Required[
        Annotated[str, says(description="https, or http on the scheduler's loopback; as the operator allows")]
    ]
    kinds: Annotated[list[Kind], says(description="of events; none: only those of jobs that name the hook")]
    queues: Annotated[list[str], says(description="whose events, with those below; none: all")]
    comment: Annotated[str, says(maxLength=200)]


class Webhook(TypedDict):
    """A webhook. Of its address only the host is shown: the rest may be a secret."""

    name: str
    url: str
    kinds: list[Kind]
    queues: list[str]
    at: Moment
    by: str
    comment: str
    waiting: Annotated[Count, says(description="deliveries that wait")]
    dead: Annotated[Count, says(description="deliveries that were given up")]


class Webhooks(TypedDict):
    """All of them; version: of the whole, which each change makes one more."""

    webhooks: list[Webhook]
    version: Count


class WebhookMade(TypedDict):
    """A webhook that was made or changed. secret: of a new one, or one with a new address; it is not shown again."""

    webhook: Webhook
    version: Count
    secret: str | None


class WebhookVersion(TypedDict):
    """A change of the webhooks."""

    version: Count
    at: Moment
    by: str
    what: str
    webhooks: list[str]


class WebhookVersions(TypedDict):
    """Changes of the webhooks, the latest first."""

    versions: list[WebhookVersion]


class WebhookTest(TypedDict):
    """What came of a test."""

    ok: bool
    status: Annotated[int, says(description="of the receiver's answer")] | None
    error: str | None
    took_s: Annotated[float, says(minimum=0)]


class DeadLetter(TypedDict):
    """Something that could not be sent, and was given up."""

    id: Count
    event: Annotated[Count, says(description="the number of the event")]
    kind: str
    tries: Count
    error: str
    given_up_at: Moment


class DeadLetters(TypedDict):
    """What was given up of a webhook, the latest last."""

    dead: list[DeadLetter]


class RetryRequest(TypedDict, total=False):
    """What is to be tried again."""

    ids: Annotated[list[Count], says(description="of dead letters; none: all")] | None


class Retried(TypedDict):
    """How many are tried again."""

    retried: Count


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/webhooks"): Operation("list_webhooks", "Webhooks", {200: Webhooks}, (404,)),
    ("GET", "/v1/webhook-versions"): Operation(
        "list_webhook_versions", "Changes of the webhooks", {200: WebhookVersions}, (404,)
    ),
    ("GET", "/v1/webhooks/{name}"): Operation("show_webhook", "A webhook", {200: Webhook}),
    ("PUT", "/v1/webhooks/{name}"): Operation(
        "put_webhook",
        "Make a webhook, or change it as a whole; If-Match: the version that was read",
        {200: WebhookMade, 201: WebhookMade},
        (409,),
        body=WebhookRequest,
        example={"url": "https://hooks.example.com/gpu", "kinds": ["failed", "gpu"]},
    ),
    ("DELETE", "/v1/webhooks/{name}"): Operation(
        "delete_webhook", "Forget a webhook, and what was to be sent to it", {200: Webhook}, (409,)
    ),
    ("POST", "/v1/webhooks/{name}/test"): Operation(
        "test_webhook", "Send a test, and say what came of it", {200: WebhookTest}
    ),
    ("GET", "/v1/webhooks/{name}/dead"): Operation(
        "list_dead_letters", "What could not be sent to a webhook", {200: DeadLetters}
    ),
    ("POST", "/v1/webhooks/{name}/retry"): Operation(
        "retry_dead_letters",
        "Try what was given up again",
        {200: Retried},
        body=RetryRequest,
        example={"ids": [7]},
    ),
}
