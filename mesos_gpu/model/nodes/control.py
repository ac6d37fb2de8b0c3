"""Control ports of the cluster, whose clients may start tasks as root or end all tasks, and metadata addresses of
clouds, which give out the credentials of a host."""

from dataclasses import dataclass
from typing import Final

#: Metadata addresses of clouds, which give a host's credentials to every client; link-local ones are not listed.
METADATA: Final = (
    "fd00:ec2::254",  # Amazon EC2
    "fd00:ec2::23",  # Amazon EKS
    "fd20:ce::254",  # Google
    "fd00:42::42",  # Scaleway
    "fd00:a9fe:a9fe::1",  # Akamai
    "fd00:c1::a9fe:a9fe",  # Oracle
    "fd00:100::100:200",  # Alibaba
    "100.100.100.200",  # Alibaba
    "192.0.0.192",  # Oracle, its classic cloud
    "168.63.129.16",  # Azure
)


@dataclass(frozen=True, slots=True)
class ControlPort:
    """A port through which the cluster can be controlled.

    Attributes:
        name: Kind of the listener: "agent", "master" or "api".
        port: Port number, 1 to 65535.
        address: IP address, if only that one is meant; "" for any address.
        boot_id: Boot id (/proc/sys/kernel/random/boot_id) of the only host on which the entry applies; "" for every
            host.
    """

    name: str
    port: int
    address: str = ""
    boot_id: str = ""
