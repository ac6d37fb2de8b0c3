"""Commands that ask Mesos' master itself."""
