"""Program for a network namespace of its own: serves at the metadata addresses of clouds, and runs reach.py in a
cgroup. No packet leaves the namespace, whose only interface is the loopback.

Arguments: directory of the cgroup, addresses of this host by commas, and what reach.py gets.
"""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

PORTS = (53, 80)


def main() -> None:
    cgroup, addresses, *words = sys.argv[1:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in addresses.split(","):
        bits = 128 if ":" in address else 32
        scope = ["scope", "link"] if address.startswith("fe80") else []
        family = "-6" if ":" in address else "-4"
        subprocess.run(["ip", family, "address", "add", f"{address}/{bits}", "dev", "lo", *scope], check=True)
    kept = []
    for port in PORTS:
        made = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        datagrams.bind(("::", port))
        kept += [made, datagrams]
        threading.Thread(target=serve, args=(made,), daemon=True).start()
    reach = Path(__file__).with_name("reach.py")
    done = subprocess.run(
        [sys.executable, str(reach), *words],
        preexec_fn=lambda: Path(cgroup, "cgroup.procs").write_text(str(os.getpid())) and None,
        check=False,
    )
    sys.exit(done.returncode)


def serve(made: socket.socket) -> None:
    while True:
        made.accept()[0].close()


if __name__ == "__main__":
    main()
