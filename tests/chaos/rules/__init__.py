"""What must hold, judged by what was truly delivered and truly happened."""
