"""The node monitor, the reaper of what dead owners left, and the doctor: whether the host is fit."""
