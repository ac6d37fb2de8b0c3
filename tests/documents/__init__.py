"""Commands in documents, and a reader that runs them."""
