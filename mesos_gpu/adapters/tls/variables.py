"""Variables of executors that say how to speak to their agent."""

from typing import Final

#: `on` or `off`; the scheduler says so (--mesos-tls), else the agent's own LIBPROCESS_SSL_ENABLED does.
TLS: Final = "MESOS_GPU_AGENT_TLS"
CACERT: Final = "MESOS_GPU_AGENT_CACERT"  # else LIBPROCESS_SSL_CA_FILE, else the authorities of the host
CERT: Final = "MESOS_GPU_AGENT_CERT"  # for an agent that asks for one
KEY: Final = "MESOS_GPU_AGENT_KEY"
#: That the agent's certificate is for; else its address, or this host's name.
NAME: Final = "MESOS_GPU_AGENT_NAME"
VARIABLES: Final = (TLS, CACERT, CERT, KEY, NAME)
