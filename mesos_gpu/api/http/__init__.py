"""The HTTP server below the routes: limits, authentication, requests, answers, and the audit log."""
