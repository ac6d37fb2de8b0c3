"""Programs on GPU hosts: the executor, the node monitor, the keeper, and the ledger of claims.

Garbage collection of Python is made rare before the rest is imported, and skipped at the end of the process:
nearly all objects that imports make stay, and a task waits for its executor's imports.
"""

import atexit
import gc

if gc.get_threshold()[0] < 50_000:  # not if the importing program has set a higher threshold itself
    gc.set_threshold(50_000, 10, 10)
atexit.register(gc.freeze)
