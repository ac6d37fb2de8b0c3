"""What a route asks of who calls it.

Each verb of each route has a rule; there is no way to make a route without one, and a test walks all of them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import JOB_RUN, Right
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.model.access.caller import Caller

Handler = Callable[[Request], Awaitable[Response]]
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)
_STATE, _RULE = "rights", "rule"


class Needs(Enum):
    """What a rule asks for."""

    NOTHING = "nothing"  # by design, or by a setting of the operator
    NAME = "name"  # that somebody is known, whoever it is
    CLUSTER = "cluster"  # the right for all of the cluster, before the handler runs
    JUDGED = "judged"  # the right for something at least; the handler asks for what the request is about


@dataclass(frozen=True, slots=True)
class Rule:
    """What one verb of a route asks for. `right` is None where no right is asked for."""

    needs: Needs
    right: Right | None = None


@dataclass(frozen=True, slots=True)
class Ruled(Generic[H_co]):
    """A handler and its rule."""

    rule: Rule
    handler: H_co


def free(handler: H) -> Ruled[H]:
    """Whoever calls."""
    return Ruled(Rule(Needs.NOTHING), handler)


def named(handler: H) -> Ruled[H]:
    """Whoever is known."""
    return Ruled(Rule(Needs.NAME), handler)


def needs(right: Right, handler: H) -> Ruled[H]:
    """Who has the right for all of the cluster."""
    return Ruled(Rule(Needs.CLUSTER, right), handler)


def judged(right: Right, handler: H) -> Ruled[H]:
    """Who has the right for something; `handler` calls `require` for what the request is about, or leaves out what
    may not be seen."""
    return Ruled(Rule(Needs.JUDGED, right), handler)


def rights_of(request: HTTPConnection) -> Rights:
    """What the caller of a request may do now: a request may last, and the document change meanwhile."""
    rights = request.scope["state"][_STATE]()
    assert isinstance(rights, Rights)
    return rights


def caller_of(request: HTTPConnection) -> Caller:
    """Who sent a request."""
    return rights_of(request).caller


def put(scope: Scope, now: Callable[[], Rights]) -> None:
    """Say what the caller of a request may do, at each moment; the one who authenticates does so, before any route."""
    scope.setdefault("state", {})[_STATE] = now


def refusal(rights: Rights, right: Right, subject: Subject | None = None) -> Refusal:
    """What somebody is told who may not: 401 without a name, else 403."""
    what, remedy = rights.missing(right, subject), rights.who_can_give()
    if right is JOB_RUN and subject is not None and (queues := rights.queues(right)):
        remedy = f"name another queue ({', '.join(queues)}); or {remedy}"
    if rights.caller.is_proved:
        return Refusal(403, "forbidden", what, remedy=remedy)
    return Refusal(401, "unauthenticated", what, remedy=remedy)


def require(rights: Rights, right: Right, subject: Subject | None = None) -> None:
    """Let pass who may.

    Raises:
        Refusal: He may not; 401 without a name, else 403.
    """
    if not rights.may(right, subject):
        raise refusal(rights, right, subject)


def admit(request: HTTPConnection, rule: Rule) -> None:
    """Ask for what the rule of a request's route asks for, now and by `admit_again`.

    Raises:
        Refusal: As of `require`.
    """
    request.scope["state"][_RULE] = rule
    check(rule, rights_of(request))


def admit_again(request: HTTPConnection) -> None:
    """Ask once more, when all of a body is there: it may take long, and rights may end meanwhile.

    Raises:
        Refusal: As of `require`.
    """
    rule = request.scope.get("state", {}).get(_RULE)
    if rule is not None:
        check(rule, rights_of(request))


def check(rule: Rule, rights: Rights) -> None:
    """Ask for what a rule asks for before its handler runs.

    Raises:
        Refusal: As of `require`.
    """
    if rule.needs is Needs.NOTHING or rights.is_open:
        return
    if rule.right is None:
        if not rights.caller.is_proved:
            raise Refusal(401, "unauthenticated", "this needs a name", remedy=rights.who_can_give())
    elif rule.needs is Needs.CLUSTER:
        require(rights, rule.right)
    elif not rights.may_some(rule.right):
        raise refusal(rights, rule.right)


def route(path: str, **verbs: Ruled[Handler]) -> Route:
    """Make a route for all verbs of a path: with one for each verb, Starlette would answer 405 with the first's
    verbs alone."""

    async def serve(request: Request) -> Response:
        ruled = verbs["GET" if request.method == "HEAD" else request.method]
        note.at(path, ruled.rule.right.name if ruled.rule.right else "")
        admit(request, ruled.rule)
        return await ruled.handler(request)

    rules = {verb: ruled.rule for verb, ruled in verbs.items()}
    return with_rules(Route(path, serve, methods=list(verbs)), rules)


def with_rules(route: Route, rules: Mapping[str, Rule]) -> Route:
    """A route that tells `rules_of` its rules, by verb."""
    route.rules = rules  # type: ignore[attr-defined]
    return route


def rules_of(route: object) -> Mapping[str, Rule]:
    """The rule of each verb of a route.

    Raises:
        AttributeError: It was made without rules.
    """
    rules: Mapping[str, Rule] = route.rules  # type: ignore[attr-defined]
    return rules
