"""Who asks: proofs in their order, sessions of browsers, and the page to log in."""
