"""TLS: contexts of servers and clients, their files, and certificates of peers."""
