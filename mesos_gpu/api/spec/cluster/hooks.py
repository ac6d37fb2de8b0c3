"""Types of requests and answers about webhooks, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, Required, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.tasks.event import EventKind

Kind = Annotated[str, one_of(*EventKind)]


class WebhookRequest(TypedDict, total=False):
    """A webhook to create or replace."""

    url: Required[
        Annotated[
            str, says(description="https, or http to the scheduler's loopback; the operator limits the hosts")
        ]
    ]
    kinds: Annotated[
        list[Kind], says(description="kinds of events; empty: only events of jobs that name the webhook")
    ]
    queues: Annotated[
        list[str], says(description="queues whose events are sent, with the queues below; empty: all")
    ]
    comment: Annotated[str, says(maxLength=200)]


class Webhook(TypedDict):
    """A webhook. Only the host of its address is shown, as the rest may be secret."""

    name: str
    url: str
    kinds: list[Kind]
    queues: list[str]
    at: Moment
    by: str
    comment: str
    waiting: Annotated[Count, says(description="number of waiting deliveries")]
    dead: Annotated[Count, says(description="number of failed deliveries")]


class Webhooks(TypedDict):
    """All webhooks. version: of the whole list, increased by each change."""

    webhooks: list[Webhook]
    version: Count


class WebhookMade(TypedDict):
    """A webhook that was created or changed. secret: for a new webhook, or a new address; it is not shown again."""

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
    """Result of a test delivery."""

    ok: bool
    status: Annotated[int, says(description="HTTP status of the receiver's answer")] | None
    error: str | None
    took_s: Annotated[float, says(minimum=0)]


class DeadLetter(TypedDict):
    """A delivery that failed after all attempts."""

    id: Count
    event: Annotated[Count, says(description="number of the event")]
    kind: str
    tries: Count
    error: str
    given_up_at: Moment


class DeadLetters(TypedDict):
    """Failed deliveries of a webhook, the latest last."""

    dead: list[DeadLetter]


class RetryRequest(TypedDict, total=False):
    """Failed deliveries to repeat."""

    ids: Annotated[list[Count], says(description="ids of failed deliveries; null: all")] | None


class Retried(TypedDict):
    """Number of deliveries that are repeated."""

    retried: Count


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/webhooks"): Operation("list_webhooks", "List webhooks", {200: Webhooks}, (404,)),
    ("GET", "/v1/webhook-versions"): Operation(
        "list_webhook_versions", "List changes of the webhooks", {200: WebhookVersions}, (404,)
    ),
    ("GET", "/v1/webhooks/{name}"): Operation("show_webhook", "Show a webhook", {200: Webhook}),
    ("PUT", "/v1/webhooks/{name}"): Operation(
        "put_webhook",
        "Create or replace a webhook; If-Match: the version that was read",
        {200: WebhookMade, 201: WebhookMade},
        (409,),
        body=WebhookRequest,
        example={"url": "https://hooks.example.com/gpu", "kinds": ["failed", "gpu"]},
    ),
    ("DELETE", "/v1/webhooks/{name}"): Operation(
        "delete_webhook", "Delete a webhook and its waiting deliveries", {200: Webhook}, (409,)
    ),
    ("POST", "/v1/webhooks/{name}/test"): Operation(
        "test_webhook", "Send a test event, and show the result", {200: WebhookTest}
    ),
    ("GET", "/v1/webhooks/{name}/dead"): Operation(
        "list_dead_letters", "List failed deliveries of a webhook", {200: DeadLetters}
    ),
    ("POST", "/v1/webhooks/{name}/retry"): Operation(
        "retry_dead_letters",
        "Repeat failed deliveries",
        {200: Retried},
        body=RetryRequest,
        example={"ids": [7]},
    ),
}
