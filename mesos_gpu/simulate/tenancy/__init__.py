"""Many tenants on one cluster: their trace, what each is promised, and how well it was kept."""
