"""Django's SQLite backend with a queue for this process's writers."""
