"""Commands for logins and contexts."""
