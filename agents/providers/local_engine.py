"""The engine's own process: llama.cpp's HTTP server out of xllamacpp, on a private loopback port.

Run as a script by `engine`. Standard input gives the configuration as one JSON line and is then the
life line: the engine ends at its end, so also when the worker is killed. (PR_SET_PDEATHSIG would
follow the thread that started it, and exists on Linux only.) Standard output carries one line, the
address.
"""

from __future__ import annotations

import json
import os
import sys

import xllamacpp


def serve(config: dict[str, str | int]) -> str:
    """Load the model and serve it; give the base URL, which answers only to the key."""
    params = xllamacpp.CommonParams()
    params.model.path = config["path"]
    params.model_alias = {config["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [config["key"]]
    params.n_ctx = config["context_window"]
    params.n_parallel = 1
    params.ui = False
    params.offline = True
    params.use_jinja = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    serve.server = xllamacpp.Server(params)  # type: ignore[attr-defined]  # kept alive by the reference
    return str(serve.server.listening_address)  # type: ignore[attr-defined]


def main() -> None:
    report = os.dup(1)
    os.dup2(2, 1)  # llama.cpp's log must not fill the pipe that nobody reads after the first line
    address = serve(json.loads(sys.stdin.readline()))
    os.write(report, f"{address}\n".encode())
    os.close(report)
    while sys.stdin.readline():
        pass
    os._exit(0)  # the server's threads have no state worth an orderly end


if __name__ == "__main__":
    main()
