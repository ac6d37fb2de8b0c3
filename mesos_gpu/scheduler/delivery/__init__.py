"""How agents come to what runs on them."""
