"""What a Mesos master says to its frameworks, byte by byte."""
