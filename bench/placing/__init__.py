"""Measurements of where work is placed: policies, and levels of a fabric."""
