"""Requests (`request`), free capacity of nodes (`node`), and the test whether one fits the other (`fit`). Pure.

Every decision (matches, reservations, gangs, preemption, plans of moves) and every explanation uses `room_for` or
`fit`. The arrays of `policy.cluster` are an index over the same capacity, used to find candidate nodes.
"""
