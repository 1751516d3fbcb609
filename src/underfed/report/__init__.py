"""What people see: every view is made from a saved record."""
