"""`make bench-start`: how long a start takes to a 200 of /v1/health/, and what the idle server weighs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from souveraine.testing.bench.processes import model_double, name_of, pss_mib, server, tree

SETTLE_SECONDS = 12.0  # warm-up of the worker and the greeting are over by then
STARTS = 3
AIM_START_SECONDS, AIM_PSS_MIB = 5.0, 350.0


def main() -> None:
    """Start several times on one data directory and print times and sizes."""
    with tempfile.TemporaryDirectory(prefix="sv-bench-") as folder, model_double() as double:
        for number in range(STARTS):
            with server(Path(folder) / "data", double) as running:
                kind = "first start (migrates)" if number == 0 else f"start {number + 1}"
                print(
                    f"{kind}: {running.start_seconds:.2f} s to /v1/health/ (aim {AIM_START_SECONDS:g} s)"
                )
                if number < STARTS - 1:
                    time.sleep(1)
                    continue
                time.sleep(SETTLE_SECONDS)
                sizes = {pid: pss_mib(pid) for pid in tree(running.pid)}
                for pid, size in sizes.items():
                    print(f"  {name_of(pid):12}{size:8.1f} MiB PSS")
                print(f"  {'together':12}{sum(sizes.values()):8.1f} MiB PSS (aim {AIM_PSS_MIB:g})")


if __name__ == "__main__":
    main()
