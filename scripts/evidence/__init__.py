"""`make evidence`: the study of docs/evidence.md, its runs and what they say."""
