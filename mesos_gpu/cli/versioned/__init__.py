"""Documents that are kept as versions: shown, compared, applied, undone."""
