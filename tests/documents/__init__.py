"""What documents say to do, and somebody who does it."""
