"""All rights and built-in roles as Markdown: the first half of docs/reference/rights.md."""

from mesos_gpu.access.rights import RIGHTS, Right, Scope
from mesos_gpu.access.roles import BUILT_IN
from mesos_gpu.model.access.document import Limits

_BY = {
    Scope.JOB: "queue, owner",
    Scope.APP: "path, owner",
    Scope.TOKEN: "owner",
    Scope.NAME: "path, and queue or app of what has it",
    Scope.QUEUE: "queue",
    Scope.VIEW: "nothing: any binding gives it",
    Scope.CLUSTER: "nothing: only bindings for all queues and all apps give it",
}


def catalogue() -> str:
    """Return the Markdown text."""
    rights = "\n".join(
        f"| `{right.name}` | {right.allows} | {_BY[right.scope]} | {_forms(right)} |" for right in RIGHTS
    )
    roles = "\n".join(
        f"| `{role.name}` | {', '.join(f'`{text}`' for text in role.rights)} | {_limits(role.limits)} |"
        for role in BUILT_IN.values()
    )
    return f"""# Rights
Made by `make docs`. Roles and bindings: [security](../security.md#what-they-may).

| right | allows to | narrowed by | also as |
|---|---|---|---|
{rights}

`job:*` is all of a kind, `*` is everything. Of a kind, `:own` narrows where all of its rights can be.

## Roles that are always there

| role | rights | jobs and apps may ask for |
|---|---|---|
{roles}"""


def _forms(right: Right) -> str:
    forms = [f"`{right.name}:own`"] if right.has_own else []
    pattern = {Scope.APP: "/shop/*", Scope.NAME: "team/*", Scope.JOB: "research-*"}.get(right.scope)
    return ", ".join([*forms, *([f"`{right.name}:{pattern}`"] if right.has_pattern and pattern else [])])


def _limits(limits: Limits) -> str:
    words = {"Unix users": limits.users, "images": limits.images, "volumes": limits.volumes}
    parts = [f"{name}: {', '.join(f'`{each}`' for each in given) or 'none'}" for name, given in words.items()]
    return "; ".join([*parts, f"priority up to {limits.highest_priority}"])
