"""Who may do what: pure rules over a caller, a document of roles and bindings, and what a request is about."""
