"""Models of the paper's rows that no library offers as their recipes need them."""
