"""Engine of the scheduler: a function `step(state, event, now, settings)` that returns effects."""
