"""Training: the loop, its methods, and what watches over them."""
