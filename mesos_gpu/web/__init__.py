"""The dashboard: one static page over the REST interface."""
