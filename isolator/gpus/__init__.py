"""The GPUs of this host: the ledger of claims, probes, health, driver volumes."""
