"""Keys derived from the server's secret key, and encryption of secrets at rest (Fernet) with one of them."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from souveraine.errors import Unavailable


def derived_key(purpose: bytes) -> bytes:
    """Return 32 bytes that follow from the server's secret key, other ones for each purpose (at most 16 bytes)."""
    return _derived(settings.SECRET_KEY, purpose)


def _derived(secret: str, purpose: bytes) -> bytes:
    return hashlib.blake2b(secret.encode(), person=purpose, digest_size=32).digest()


@lru_cache(maxsize=4)
def _fernet(secret: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(_derived(secret, b"souveraine-rest")))


def encrypt(text: str) -> str:
    """Encrypt `text` for storage."""
    return _fernet(settings.SECRET_KEY).encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Decrypt what `encrypt` gave. Raises Unavailable when the server's secret key was changed."""
    try:
        return _fernet(settings.SECRET_KEY).decrypt(token.encode()).decode()
    except InvalidToken:
        raise Unavailable(
            "A stored secret cannot be decrypted: the server's secret key has changed. Restore the "
            "secret_key file of the data directory, or set the secret anew."
        ) from None
