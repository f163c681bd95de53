"""Uploaded files: bytes (`store`), text (`extract`, `pdf`), its pieces (`chunks`), and how it is shown (`view`)."""
