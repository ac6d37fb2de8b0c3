"""Ports that command the cluster: whoever reaches one may start work as root, or end everybody's. And the addresses at
which a cloud gives away a host's credentials."""

from dataclasses import dataclass
from typing import Final

#: Where clouds give a host's credentials to whoever asks there: single addresses beside the link-local ones.
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
