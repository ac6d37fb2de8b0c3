"""The field `check` of an app: a check whose latest result is shown, and that never ends a task. Pure."""

import shlex
from dataclasses import replace

from mesos_gpu.model.apps.app import App, HttpScheme, PortCheck
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol


def shown_check(app: App) -> HealthCheck | None:
    """Return the app's `check` as the executor makes it, never ending a task; None if the app has none."""
    requested = app.check
    if requested is None:
        return None
    shown = HealthCheck(
        grace_period_s=0,
        interval_s=requested.interval_s,
        timeout_s=requested.timeout_s,
        delay_s=requested.delay_s,
        max_consecutive_failures=0,
    )
    if (command := requested.exec) is not None:
        line = command.shell if command.shell is not None else shlex.join(command.argv)
        return replace(shown, protocol=Protocol.COMMAND, command=line)
    where = requested.http or requested.tcp or PortCheck()
    index = where.port_index or 0
    shown = replace(shown, port=where.port, port_index=index if where.port is None else None)
    if requested.http is None:
        return replace(shown, protocol=Protocol.MESOS_TCP)
    is_https = where.scheme is HttpScheme.HTTPS
    return replace(shown, protocol=Protocol.MESOS_HTTPS if is_https else Protocol.MESOS_HTTP, path=where.path)
