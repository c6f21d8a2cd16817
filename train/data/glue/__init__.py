"""The nine tasks of GLUE: where their files lie, how they are read, and what is measured."""
