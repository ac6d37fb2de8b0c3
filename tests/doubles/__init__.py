"""Typed fakes and builders that tests share."""
