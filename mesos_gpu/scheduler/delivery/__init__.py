"""Commands by which agents get and start the programs of this package."""
