"""The HTTP server below the routes: bounds, requests, answers, the audit line."""
