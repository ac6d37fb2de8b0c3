"""Tests of commands about Mesos itself."""
