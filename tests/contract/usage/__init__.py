"""Records of use, and who is told what of them."""
