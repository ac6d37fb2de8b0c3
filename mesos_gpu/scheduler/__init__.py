"""The daemon: a queue of events, the engine, and the effects run in their order."""
