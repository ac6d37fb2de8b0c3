"""The state's file: schema, copies, damage."""
