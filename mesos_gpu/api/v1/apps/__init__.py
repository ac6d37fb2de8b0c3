"""Routes of templates of apps."""
