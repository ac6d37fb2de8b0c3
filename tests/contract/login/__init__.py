"""Who asks: proofs, sessions, and the page to log in, over a real server."""
