"""The tree of queues in the engine: its versions, who is guaranteed what, who gives back."""
