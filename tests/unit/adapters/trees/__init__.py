"""Files and directories as streams."""
