"""What no index has in a form that installs: README.md says what, from where, and what was changed."""
