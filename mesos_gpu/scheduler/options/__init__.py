"""Options of the scheduler's command line, one module per section."""
