"""Long runs of random events against the real engine, judged by a witness."""
