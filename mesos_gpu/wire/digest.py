"""BLAKE2 (RFC 7693), for seals and for digests of names. Executors import it, so it avoids loading OpenSSL."""

try:  # the module behind hashlib.blake2b, without the OpenSSL that hashlib loads
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b"]
