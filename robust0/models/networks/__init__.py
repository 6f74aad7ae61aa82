"""Networks of our own, registered with timm."""
