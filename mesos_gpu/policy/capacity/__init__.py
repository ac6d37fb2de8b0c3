"""What is asked for (`request`), what is free (`node`), and the one answer to whether it fits (`fit`). Pure.

Whoever decides (a match, a reservation, a gang, preemption, a plan of moves) and whoever explains asks `room_for` or
`fit`. The arrays of `policy.cluster` are an index over the same: they say where to look.
"""
