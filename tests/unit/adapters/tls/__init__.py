"""Tests of TLS connections and files."""
