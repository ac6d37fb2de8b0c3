"""What runs on GPU hosts: the ledger of claims, the executor and the node monitor.

Python's looks for garbage are made rare before the rest is imported, and none is made at the end of the process: nearly
all that imports make stays, and a task waits for its executor's.
"""

import atexit
import gc

if gc.get_threshold()[0] < 50_000:  # else who imports this has said how rare
    gc.set_threshold(50_000, 10, 10)
atexit.register(gc.freeze)
