"""Which records a list shows, decided in the same way by the scheduler and by its clients."""
