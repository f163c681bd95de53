"""What `manage.py serve` stands on: lock, private Redis, child processes, the supervising loop.

Plain Python: nothing here imports a Django app, so that it can be tested without a database.
"""
