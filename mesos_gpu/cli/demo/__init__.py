"""Demos of the platform: `mesos-gpu demo`."""
