"""The scheduler as a function: step(state, event, now) gives effects."""
