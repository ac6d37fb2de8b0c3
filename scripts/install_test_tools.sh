#!/usr/bin/env bash
# Install what some tests need, from Debian's packages: a Docker Engine, a registry, a static program for the images
# that the tests make, `ip` for its bridge, XFS, which shares blocks, and a
# load balancer. Nothing is started: the tests start an engine of their own. Quick when all is there.
set -euo pipefail

missing=()
command -v dockerd >/dev/null || missing+=(docker.io)
command -v docker-registry >/dev/null || missing+=(docker-registry)
# ldd fails for a static program.
if ! command -v busybox >/dev/null || ldd "$(command -v busybox)" >/dev/null 2>&1; then missing+=(busybox-static); fi
command -v ip >/dev/null || missing+=(iproute2)
command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
command -v haproxy >/dev/null || missing+=(haproxy)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "These Debian packages are missing. Run this line: sudo apt-get install -y ${missing[*]}" >&2
    exit 1
fi
# Without this the package's own service would start, and stay.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >/dev/null
