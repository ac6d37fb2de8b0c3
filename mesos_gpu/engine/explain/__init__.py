"""What those who ask are told of what a match would do. It changes nothing."""
