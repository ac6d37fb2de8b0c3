"""Command `mesos-gpu-executor.pyz doctor`: the doctor for hosts where the command `mesos-gpu` is not
installed.
"""

import os
import sys

from isolator.gpus.ledger import directory
from isolator.node.doctor import diagnose
from isolator.node.findings import Level, lines
from isolator.node.monitor import probe_from
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.plain import clean


def main() -> int:
    """Print all findings; return 1 if this host is not fit."""
    try:
        findings = list(diagnose(probe_from(os.environ), directory(), os.environ))
    except MesosGpuError as error:
        print(clean(f"Error: {error}"), file=sys.stderr)
        return error.exit_code
    for line in lines(findings):
        print(clean(line))
    return 1 if any(finding.level is Level.FAIL for finding in findings) else 0
