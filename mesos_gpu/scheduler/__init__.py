"""The daemon: a queue of events, the engine, and the effects run in their order.

Python's looks for garbage are made rare before the rest is imported, and none is made at the end of the process: nearly
all that imports make stays, and looking takes a fifth of the time until a scheduler is up. Looks at what has outlived
one are small instead: a launch makes a hundred objects that stay, and to look at all that a few seconds of launches
have made takes half a second.
"""

import atexit
import gc

gc.set_threshold(50_000, 1, 50)
atexit.register(gc.freeze)
