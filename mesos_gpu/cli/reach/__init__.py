"""How a command reaches its scheduler: the address, and whom to believe there."""
