"""Changes of the tree of queues: versions, guaranteed admission, spans for accounting, budgets, and notices."""
