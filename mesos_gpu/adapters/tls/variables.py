"""Environment variables of executors with the TLS settings for their agent."""

from typing import Final

#: `on` or `off`, set by the scheduler (--mesos-tls); by default the agent's own LIBPROCESS_SSL_ENABLED decides.
TLS: Final = "MESOS_GPU_AGENT_TLS"
CACERT: Final = "MESOS_GPU_AGENT_CACERT"  # default: LIBPROCESS_SSL_CA_FILE, or else the host's authorities
CERT: Final = "MESOS_GPU_AGENT_CERT"  # for agents that require client certificates
KEY: Final = "MESOS_GPU_AGENT_KEY"
#: Name in the agent's certificate; by default its address, or this host's name.
NAME: Final = "MESOS_GPU_AGENT_NAME"
VARIABLES: Final = (TLS, CACERT, CERT, KEY, NAME)
