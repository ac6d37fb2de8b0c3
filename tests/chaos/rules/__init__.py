"""Rules that the scheduler must keep, checked by delivered messages and by the simulated cluster."""
