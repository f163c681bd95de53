"""The text of a PDF, read by a process of its own: `python -m agents.files.pdf <path>` writes it to stdout.

A PDF is a program of a stranger to a large parser. A loop or a bomb in it ends this process, by its limits,
and nothing else. It loads neither Django nor settings.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from pypdf import PdfReader
from pypdf.errors import PyPdfError

CPU_SECONDS = 120
MEMORY_BYTES = 2 * 1024**3
MAX_CHARS = 20_000_000
UNREADABLE, ENCRYPTED = 3, 4  # exit codes


def main(path: str) -> int:
    """Write the text of all pages; returns the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    left = MAX_CHARS
    try:
        with Path(path).open("rb") as stream:
            reader = PdfReader(stream)
            if reader.is_encrypted and not reader.decrypt(""):
                return ENCRYPTED
            for page in reader.pages:
                text = page.extract_text().strip()
                sys.stdout.buffer.write(text[:left].encode("utf-8", "replace") + b"\n\n")
                left -= len(text)
                if left <= 0:
                    break
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError) as exc:
        sys.stderr.write(f"{type(exc).__name__}: {exc}"[:300])
        return UNREADABLE
    except (RecursionError, MemoryError, NotImplementedError) as exc:
        sys.stderr.write(f"{type(exc).__name__}")
        return UNREADABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
