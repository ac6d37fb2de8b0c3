"""Authorization: pure rules over a caller, a document of roles and bindings, and the subject of a request."""
