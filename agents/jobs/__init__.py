"""What jobs do: `kinds` names the handlers, `running` runs them in workers."""
