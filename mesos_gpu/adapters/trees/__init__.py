"""Transfer of directory trees: reading for the sender, writing for the receiver."""
