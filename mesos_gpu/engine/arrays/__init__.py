"""Job arrays, whose tasks become jobs as there is room for them."""
