"""Kill the server at every crash point of a turn and look at what is left.

    python -m souveraine.testing.crash [--postgres postgres://user@host] [--only after_claim] [--json]

Each case is one conversation whose process dies (SIGKILL) at one point. A real worker then takes up all
of them at once, as after `serve` has restarted one, and every conversation gets one more message.
`scenarios.py` says what is played, `checks.py` what must hold, `lab.py` how processes are made and killed.
"""
