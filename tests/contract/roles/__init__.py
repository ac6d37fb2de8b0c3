"""Roles of a framework, as masters hear of them."""
