"""Commands for files of jobs: list, print and copy them."""
