"""Tests of job arrays as clients meet them."""
