"""Hosts with a server of SSH, a root and processes of their own, in namespaces of this machine."""
