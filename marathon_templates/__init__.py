"""Definitions of apps for Marathon; a package so that they are installed. `mesos-gpu template` reads them."""
