"""What people see: the only package that imports rich. It never sees a tensor."""
