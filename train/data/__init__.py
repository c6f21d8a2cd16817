"""Data sets: where they lie, how they are checked, and which samples make up which batch."""
