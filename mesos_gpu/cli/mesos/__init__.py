"""Commands that use the Mesos master's own interfaces: quota and reservations."""
