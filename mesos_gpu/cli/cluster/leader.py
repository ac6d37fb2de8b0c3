"""`mesos-gpu leader`: the leading scheduler, and the replication lag of the others."""

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option


@click.command()
@click.option("--abdicate", is_flag=True, help="Make the leader hand over to another scheduler.")
@json_option
@api_command
def leader(app: App, abdicate: bool, as_json: bool) -> None:
    """Show which of several schedulers leads, and how far behind the others are.

    With --abdicate another scheduler leads, if there is one; tasks keep running. The former leader exits, and its
    service manager restarts it.
    """
    from mesos_gpu.api.peers import Leadership

    client = app.client()
    if abdicate:
        client.call("DELETE", "/v2/leader", dict[str, str])
        output.note("the leader hands over to another scheduler")
        return
    leadership = client.call("GET", "/v1/leader", Leadership)
    if as_json:
        output.document({"url": client.url, **leadership})
        return
    pairs = [("leader", leadership["leader"] or "none")]
    for member in leadership["schedulers"]:
        behind = max(leadership["batch"] - member["applied"], 0)
        words = (
            "leads" if member["leads"] else f"stands by, {behind} batches behind" if behind else "stands by"
        )
        pairs.append(("scheduler", f"{member['url']} ({words})"))
    if leadership["age_s"] is not None:
        pairs.append(
            ("asked", f"{leadership['here']}, a standby; its copy is {leadership['age_s']:.0f} s old")
        )
    output.pairs(pairs)
    if leadership["zookeeper"]:
        output.note(f"no leader can be elected now: {leadership['zookeeper']}")
