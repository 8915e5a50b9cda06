"""`python -m plumbline run train.py`: audits a script that knows nothing of it."""
