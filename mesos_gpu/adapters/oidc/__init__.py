"""OpenID Connect: an issuer's keys, tokens that it has signed, and logins at it."""
