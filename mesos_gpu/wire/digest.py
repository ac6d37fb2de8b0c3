"""BLAKE2 (RFC 7693), for seals and for digests that name things. Lean: executors import it."""

try:  # what hashlib has this from, without the OpenSSL that hashlib loads
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b"]
