"""What jobs have used, and what they may use still."""
