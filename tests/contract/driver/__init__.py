"""Tests of the Mesos driver."""
