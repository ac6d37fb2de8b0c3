"""Scripts on other hosts through OpenSSH's client."""
