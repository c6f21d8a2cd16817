"""Generators of data sets: what is drawn, how it is written, and how the work is shared out."""
