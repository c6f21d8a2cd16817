"""The pictures, from records alone: `python -m scripts.figures`, or `make figures`."""
