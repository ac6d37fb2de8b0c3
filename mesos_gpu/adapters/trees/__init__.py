"""Files and directories as they are read to be sent, and written as they come."""
