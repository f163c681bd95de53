"""Agent files (`.af`): agents with their memory, tools and messages as one JSON document, out and in."""
