"""Programs of ours that run inside a task, as its user and in its view, without executing any program of the
task.
"""
