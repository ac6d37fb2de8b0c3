"""The GPU platform for Apache Mesos."""

__version__ = "0.1.0"
