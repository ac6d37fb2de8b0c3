"""What tests that start clusters need of a machine: marks that skip them where it is missing, and say what is."""

import os
import shutil
from typing import Final

import pytest

from mesos_gpu.local.zookeeper import JAR

ZOOKEEPER: Final = pytest.mark.skipif(
    not JAR.exists(), reason="needs ZooKeeper: apt-get install -y zookeeper default-jre-headless"
)
#: Hosts in network namespaces, and their cuts.
NAMESPACES: Final = (
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces"),
    pytest.mark.skipif(not shutil.which("iptables"), reason="needs iptables"),
)
