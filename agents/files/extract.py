"""From a file's bytes to its text. What is no text and no PDF is refused when it is uploaded."""

from __future__ import annotations

import codecs
import mimetypes
import subprocess
import sys
from pathlib import Path

from agents.files import pdf
from souveraine.errors import InvalidArgument, UnsupportedMediaType
from souveraine.lib.text import clean_text

PDF = "application/pdf"
TEXT = "text/plain"
PDF_MAGIC = b"%PDF-"
MAGIC_WITHIN = 1024  # bytes: some writers put rubbish before the header
SNIFFED_BYTES = 65_536
TIMEOUT_SECONDS = 180.0
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
BINARY = frozenset(range(32)) - frozenset(b"\t\n\r\f\b\x1b\x0b")  # bytes that no text has
ROOT = Path(__file__).resolve().parent.parent.parent


def media_type_of(name: str, head: bytes) -> str:
    """Return the media type of a file by its first bytes and its name. Raises UnsupportedMediaType."""
    if PDF_MAGIC in head[:MAGIC_WITHIN]:
        return PDF
    guessed = mimetypes.guess_type(name)[0] or TEXT
    has_bom = any(head.startswith(bom) for bom, _ in BOMS)
    if guessed == PDF or (not has_bom and not BINARY.isdisjoint(head[:SNIFFED_BYTES])):
        raise UnsupportedMediaType(
            f"{name!r} is neither text nor a PDF. Upload text, Markdown, source code, CSV, HTML or a PDF; "
            "convert other formats first."
        )
    return guessed


def text_of(path: Path, media_type: str) -> str:
    """Return the text of a stored file, lines ended by a newline. Raises InvalidArgument when there is none."""
    text = _pdf_text(path) if media_type == PDF else _decoded(path.read_bytes())
    text = clean_text(text.replace("\r\n", "\n").replace("\r", "\n"))
    if not text.strip():
        raise InvalidArgument(
            "No text was found in the file. A scanned PDF needs text recognition first."
            if media_type == PDF
            else "The file is empty."
        )
    return text


def _decoded(raw: bytes) -> str:
    for bom, encoding in BOMS:
        if raw.startswith(bom):
            return raw.decode(encoding, "replace")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")  # what old Windows programs write


def _pdf_text(path: Path) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", pdf.__name__, str(path)],
            cwd=ROOT,
            env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InvalidArgument(
            f"Reading the PDF took longer than {TIMEOUT_SECONDS:g} s, so it was given up."
        ) from None
    if done.returncode == pdf.ENCRYPTED:
        raise InvalidArgument("The PDF is protected by a password. Remove it and upload again.")
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it broke off"]
        raise InvalidArgument(f"The PDF cannot be read ({reason[0][:200]}).")
    return done.stdout.decode("utf-8", "replace")
