"""Drop-in for the part of http-parser 0.9 that pymesos uses, on top of httptools."""

version_info = (0, 9, 0)
__version__ = "0.9.0.post1"
