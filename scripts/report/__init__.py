"""The report: results/README.md, results/report.html and the marked blocks of README.md, all from the records.

`python -m scripts.report`, or `make report`; `make check-results` compares what is there with what it makes.
"""
