"""Rules of routes: the authentication and the right that a route requires.

Each method of each route has a rule; there is no way to make a route without one, and a test checks all of them.
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
    """Kind of check that a rule makes."""

    NOTHING = "nothing"  # open to all callers, by design or by a setting of the operator
    NAME = "name"  # a proved name, whatever it is
    CLUSTER = "cluster"  # the right for the whole cluster, checked before the handler runs
    JUDGED = "judged"  # the right for anything; the handler checks the resource


@dataclass(frozen=True, slots=True)
class Rule:
    """Requirement of one method of a route: the kind of check, and the needed right, if any."""

    needs: Needs
    right: Right | None = None


@dataclass(frozen=True, slots=True)
class Ruled(Generic[H_co]):
    """A handler of a route with its rule."""

    rule: Rule
    handler: H_co


def free(handler: H) -> Ruled[H]:
    """Require nothing for a handler."""
    return Ruled(Rule(Needs.NOTHING), handler)


def named(handler: H) -> Ruled[H]:
    """Require a proved name for a handler."""
    return Ruled(Rule(Needs.NAME), handler)


def needs(right: Right, handler: H) -> Ruled[H]:
    """Require a right for the whole cluster for a handler."""
    return Ruled(Rule(Needs.CLUSTER, right), handler)


def judged(right: Right, handler: H) -> Ruled[H]:
    """Require a right for at least something for a handler.

    The handler must call `require` for the resource that the request concerns, or leave out of its answer what the
    caller may not see.
    """
    return Ruled(Rule(Needs.JUDGED, right), handler)


def rights_of(request: HTTPConnection) -> Rights:
    """Return the current rights of a request's caller; they may change during a request, with the access document."""
    rights = request.scope["state"][_STATE]()
    assert isinstance(rights, Rights)
    return rights


def caller_of(request: HTTPConnection) -> Caller:
    """Return the caller of a request."""
    return rights_of(request).caller


def put(scope: Scope, now: Callable[[], Rights]) -> None:
    """Store a function that returns the current rights of a request's caller. Called before routing."""
    scope.setdefault("state", {})[_STATE] = now


def refusal(rights: Rights, right: Right, subject: Subject | None = None) -> Refusal:
    """Return the refusal for a caller who lacks a right: 401 without a name, else 403."""
    what, remedy = rights.missing(right, subject), rights.who_can_give()
    if right is JOB_RUN and subject is not None and (queues := rights.queues(right)):
        remedy = f"name another queue ({', '.join(queues)}); or {remedy}"
    if rights.caller.is_proved:
        return Refusal(403, "forbidden", what, remedy=remedy)
    return Refusal(401, "unauthenticated", what, remedy=remedy)


def require(rights: Rights, right: Right, subject: Subject | None = None) -> None:
    """Require a right.

    Raises:
        Refusal: The caller lacks it; 401 without a name, else 403.
    """
    if not rights.may(right, subject):
        raise refusal(rights, right, subject)


def admit(request: HTTPConnection, rule: Rule) -> None:
    """Check the rule of a request's route, and store it for `admit_again`.

    Raises:
        Refusal: The caller does not meet the rule.
    """
    request.scope["state"][_RULE] = rule
    check(rule, rights_of(request))


def admit_again(request: HTTPConnection) -> None:
    """Check the rule again after the body has come: this may take long, and rights may end meanwhile.

    Raises:
        Refusal: The caller no longer meets the rule.
    """
    rule = request.scope.get("state", {}).get(_RULE)
    if rule is not None:
        check(rule, rights_of(request))


def check(rule: Rule, rights: Rights) -> None:
    """Check what a rule requires before its handler runs.

    Raises:
        Refusal: The rule is not met; 401 without a name, else 403.
    """
    if rule.needs is Needs.NOTHING or rights.is_open:
        return
    if rule.right is None:
        if not rights.caller.is_proved:
            raise Refusal(
                401, "unauthenticated", "this request needs authentication", remedy=rights.who_can_give()
            )
    elif rule.needs is Needs.CLUSTER:
        require(rights, rule.right)
    elif not rights.may_some(rule.right):
        raise refusal(rights, rule.right)


def route(path: str, **verbs: Ruled[Handler]) -> Route:
    """Make one route for all methods of a path.

    With a route for each method, a 405 of Starlette would list the methods of the first route only.
    """

    async def serve(request: Request) -> Response:
        ruled = verbs["GET" if request.method == "HEAD" else request.method]
        note.at(path, ruled.rule.right.name if ruled.rule.right else "")
        admit(request, ruled.rule)
        return await ruled.handler(request)

    rules = {verb: ruled.rule for verb, ruled in verbs.items()}
    return with_rules(Route(path, serve, methods=list(verbs)), rules)


def with_rules(route: Route, rules: Mapping[str, Rule]) -> Route:
    """Store the rules of a route by method, for `rules_of`, and return the route."""
    route.rules = rules  # type: ignore[attr-defined]
    return route


def rules_of(route: object) -> Mapping[str, Rule]:
    """The rule of each verb of a route.

    Raises:
        AttributeError: It was made without rules.
    """
    rules: Mapping[str, Rule] = route.rules  # type: ignore[attr-defined]
    return rules
