"""An OpenID Connect issuer that tests start."""
