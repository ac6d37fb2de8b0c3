"""A match: offers held against jobs that wait."""
