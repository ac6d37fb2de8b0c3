"""What runs on GPU hosts: the ledger of claims, the executor and the node monitor."""
