"""The field `check` of an app: a check whose latest result is shown, and that ends no task. Pure."""

import shlex
from dataclasses import replace

from mesos_gpu.model.apps.app import App, HttpScheme, PortCheck
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol


def shown_check(app: App) -> HealthCheck | None:
    """Return the app's `check` as the executor makes it; None if the app has none. It ends no task."""
    asked = app.check
    if asked is None:
        return None
    shown = HealthCheck(
        grace_period_s=0,
        interval_s=asked.interval_s,
        timeout_s=asked.timeout_s,
        delay_s=asked.delay_s,
        max_consecutive_failures=0,
    )
    if (command := asked.exec) is not None:
        line = command.shell if command.shell is not None else shlex.join(command.argv)
        return replace(shown, protocol=Protocol.COMMAND, command=line)
    where = asked.http or asked.tcp or PortCheck()
    index = where.port_index or 0
    shown = replace(shown, port=where.port, port_index=index if where.port is None else None)
    if asked.http is None:
        return replace(shown, protocol=Protocol.MESOS_TCP)
    is_https = where.scheme is HttpScheme.HTTPS
    return replace(shown, protocol=Protocol.MESOS_HTTPS if is_https else Protocol.MESOS_HTTP, path=where.path)
