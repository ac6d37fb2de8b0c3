"""Job arrays: jobs are made of them as there is room for them."""
