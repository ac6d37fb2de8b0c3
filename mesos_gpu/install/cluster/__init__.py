"""A cluster on hosts of its own: a file names them, a plan says what each needs, and it is done there over SSH."""
