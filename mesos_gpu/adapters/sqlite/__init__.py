"""Around the state's file: its rights and lock, its schema, copies of it, and what takes its place."""
