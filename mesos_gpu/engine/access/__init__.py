"""Who may do what, as it is kept: versions of the document, and tokens."""
