"""Hosts in namespaces of this machine: with SSH, a root and processes of their own, or with boots and clocks."""
