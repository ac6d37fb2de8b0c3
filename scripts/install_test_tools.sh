#!/usr/bin/env bash
# Install what tests need beside the set-up, from Debian's packages: a Docker Engine, podman, a registry, a static program for
# the images that the tests make, `ip`, `iptables` and `nft` for its bridge and for hosts in namespaces, a server of SSH
# for them, ZooKeeper, clocks that are set for some processes, XFS, which shares blocks, a load balancer, a proxy,
# programs for certificates and for passwords, a client of HTTPS, sudo, what makes the root of a bare Debian, the SASL
# mechanisms of Mesos, a browser, what reads ELF files, what draws diagrams, and a C compiler.
# Nothing is started: the tests start what they need. Quick when all is there. Who is not root is told the line to run;
# the tests that need it are skipped, and say so.
set -euo pipefail

# Of Debian, and outside a user's PATH.
PATH=$PATH:/usr/sbin:/sbin
missing=()
command -v dockerd >/dev/null || missing+=(docker.io)
command -v podman >/dev/null || missing+=(podman)
command -v docker-registry >/dev/null || missing+=(docker-registry)
# ldd fails for a static program.
if ! command -v busybox >/dev/null || ldd "$(command -v busybox)" >/dev/null 2>&1; then missing+=(busybox-static); fi
command -v ip >/dev/null || missing+=(iproute2)
command -v iptables >/dev/null || missing+=(iptables)
command -v nft >/dev/null || missing+=(nftables)
command -v sshd >/dev/null || missing+=(openssh-server)
command -v sudo >/dev/null || missing+=(sudo)
[ -e /usr/share/java/zookeeper.jar ] || missing+=(zookeeper)
command -v java >/dev/null || missing+=(default-jre-headless)
compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null || missing+=(faketime)
command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
command -v zstd >/dev/null || missing+=(zstd)
command -v haproxy >/dev/null || missing+=(haproxy)
command -v chromium >/dev/null || missing+=(chromium)
command -v dot >/dev/null || missing+=(graphviz)
command -v readelf >/dev/null || missing+=(binutils)
command -v promtool >/dev/null || missing+=(prometheus)
command -v systemd-analyze >/dev/null || missing+=(systemd) # nothing of it is started
command -v debootstrap >/dev/null || missing+=(debootstrap)
command -v nginx >/dev/null || missing+=(nginx)
command -v openssl >/dev/null || missing+=(openssl)
command -v curl >/dev/null || missing+=(curl)
command -v htpasswd >/dev/null || missing+=(apache2-utils)
command -v cc >/dev/null || command -v gcc >/dev/null || missing+=(gcc)
# CRAM-MD5, by which frameworks and agents authenticate with the master.
compgen -G "/usr/lib*/*/sasl2/libcrammd5.so" >/dev/null || [ -e /usr/lib64/sasl2/libcrammd5.so ] || missing+=(libsasl2-modules)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Tests that need these Debian packages are skipped. Run this line to have them:" >&2
    echo "    sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 0
fi
echo "test: installing ${missing[*]} with apt-get"
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
