"""What people type besides `python -m train`."""
