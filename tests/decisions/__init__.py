"""Decisions of the engine in random worlds, recorded as digests, which show each change of behaviour."""
