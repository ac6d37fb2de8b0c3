"""The host: its facts, paths, users, processes, and whether it is fit."""
