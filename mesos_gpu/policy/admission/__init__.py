"""Admission of jobs: what is refused, and what must wait although there is room."""
