"""Authentication of the REST interface, as configured on the command line."""
