"""OpenID Connect: keys of an issuer, verification of its tokens, and logins."""
