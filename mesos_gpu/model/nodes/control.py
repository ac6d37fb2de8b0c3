"""Ports that command the cluster: whoever reaches one may start work as root, or end everybody's."""

from dataclasses import dataclass


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
