"""A standby scheduler: requests that it answers from its copy of the state, and requests that it forwards to the
leader.
"""
