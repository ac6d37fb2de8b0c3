"""Events for listeners and webhooks, saved together with the state that causes them."""
