"""What the command line of the scheduler may say, a module for each section of it."""
