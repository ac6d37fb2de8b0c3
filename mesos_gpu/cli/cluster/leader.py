"""`mesos-gpu leader`: which of several schedulers leads, and how far the others are."""

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option


@click.command()
@click.option("--abdicate", is_flag=True, help="Have it leave its place to another.")
@json_option
@api_command
def leader(app: App, abdicate: bool, as_json: bool) -> None:
    """Show which of several schedulers leads, and how far the others are.

    With --abdicate another leads, if there is one: tasks run on. Who led ends, and is started again by its service.
    """
    from mesos_gpu.api.peers import Leadership

    client = app.client()
    if abdicate:
        client.call("DELETE", "/v2/leader", dict[str, str])
        output.note("the scheduler that led leaves its place to another")
        return
    told = client.call("GET", "/v1/leader", Leadership)
    if as_json:
        output.document({"url": client.url, **told})
        return
    pairs = [("leader", told["leader"] or "none")]
    for each in told["schedulers"]:
        behind = max(told["batch"] - each["applied"], 0)
        words = "leads" if each["leads"] else f"stands by, {behind} batches behind" if behind else "stands by"
        pairs.append(("scheduler", f"{each['url']} ({words})"))
    if told["age_s"] is not None:
        pairs.append(("asked", f"{told['here']}, which stands by; its copy is {told['age_s']:.0f} s old"))
    output.pairs(pairs)
    if told["zookeeper"]:
        output.note(f"nobody can be elected now: {told['zookeeper']}")
