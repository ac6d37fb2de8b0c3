"""The audit log as files of one directory."""
