"""The models that no library has as the paper needs them."""
