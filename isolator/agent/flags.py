"""The flags of the agent that started this executor, from its operator API."""

from collections.abc import Mapping
from typing import Final

from isolator.agent.agent_api import Settings
from isolator.agent.http import HttpConnection
from isolator.agent.tls import AgentTls
from mesos_gpu.errors import Unavailable
from mesos_gpu.wire.body import parsed

AGENT_S: Final = 10.0


def flags_of_own_agent(env: Mapping[str, str]) -> dict[str, str]:
    """Return the flags of the agent that started an executor, as `flags_of`.

    Args:
        env: Environment of the executor.

    Raises:
        Unavailable: The agent does not answer, or does not show its flags.
        MesosGpuError: The settings in the environment are incomplete or wrong.
    """
    settings = Settings.from_environment(env)
    return flags_of(settings.endpoint, authorization=settings.authorization(), tls=settings.tls)


def flags_of(
    endpoint: str,
    *,
    prefix: str = "",
    authorization: Mapping[str, str] | None = None,
    tls: AgentTls | None = None,
) -> dict[str, str]:
    """Return the flags that an agent runs with, by name without dashes; unset flags are left out.

    Args:
        endpoint: HOST:PORT of the agent.
        prefix: Path of an agent that shares its process with others: /slave(N).
        authorization: Header Authorization, for an agent that needs one.
        tls: Settings of TLS, for an agent that speaks it.

    Raises:
        Unavailable: The agent does not answer, or does not show its flags.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json", **(authorization or {})}
    connection = HttpConnection(endpoint, AGENT_S, tls)
    try:
        response = connection.post(f"{prefix}/api/v1", b'{"type": "GET_FLAGS"}', headers)
        text = response.read()
        if response.status != 200:
            detail = text[:200].decode(errors="replace")
            raise Unavailable(
                f"the agent {endpoint} does not show its flags: {response.status} {detail}",
                remedy="allow the view_flags action to executors in its ACLs; if it asks for credentials, name their "
                "file in MESOS_GPU_AGENT_CREDENTIALS",
            )
        flags = parsed(text)["get_flags"]["flags"]
        return {str(flag["name"]): str(flag["value"]) for flag in flags if "value" in flag}
    except OSError as error:
        raise Unavailable(
            f"the agent {endpoint} does not answer: {error}", remedy="check that it runs, and read its log"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"the server at {endpoint} is not a Mesos agent: {error!r}", remedy="name the agent's address"
        ) from error
    finally:
        connection.close()
