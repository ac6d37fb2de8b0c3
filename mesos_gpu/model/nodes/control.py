"""Control ports of the cluster, whose clients may start tasks as root or end all tasks; and the metadata addresses at
which clouds give out a host's credentials."""

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
    """A port that commands the cluster.

    Attributes:
        name: What listens: "agent", "master" or "api".
        port: 1 to 65535.
        address: An IP address, where only that one is meant; "": any.
        boot_id: Of the only host (/proc/sys/kernel/random/boot_id) on which it means something; "": every host.
    """

    name: str
    port: int
    address: str = ""
    boot_id: str = ""
