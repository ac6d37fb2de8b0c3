"""Shares of GPUs: what a card offers, what a task asks for, what it holds, and what is guaranteed to it."""
