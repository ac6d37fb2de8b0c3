"""Other hosts by SSH: a real server."""
