"""TLS: contexts for servers and clients, their files, and what a peer has proved."""
