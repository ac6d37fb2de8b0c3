"""Plan of an upgrade of the platform."""
