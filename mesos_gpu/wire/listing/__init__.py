"""Filters of lists, applied equally by the scheduler and by its clients."""
