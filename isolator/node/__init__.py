"""Node monitor, cleanup after dead executors, and the doctor, which checks whether a host is fit."""
