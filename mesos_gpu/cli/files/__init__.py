"""Files of jobs: listed, printed, brought here and taken there."""
