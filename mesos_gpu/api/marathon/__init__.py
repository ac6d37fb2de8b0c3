"""Marathon 1.11's REST interface, /v2, over the scheduler: docs/reference/marathon.md as routes."""
