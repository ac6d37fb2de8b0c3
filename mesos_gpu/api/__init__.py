"""The REST interface and the page that people open."""
