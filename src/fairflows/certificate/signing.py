"""Ed25519 signatures, through the optional package ``cryptography`` (the extra ``fairflows[sign]``)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairflows.exceptions import DataError
from fairflows.table.json_text import read_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


def new_key_pair() -> tuple[bytes, bytes]:
    """A new private key and its public key, as the PEM files hold them."""
    _, serialization, ed25519 = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, _public_pem(key.public_key())


def sign_bytes(message: bytes, private_key: Path) -> str:
    """The signature of a message, in hexadecimal digits."""
    return _read_private(private_key).sign(message).hex()


def is_signed(message: bytes, signature: str, public_key: Path) -> bool:
    """Whether the holder of the private key signed the message."""
    return _verifies(message, signature, _read_public(public_key))


def is_own_signature(message: bytes, signature: str, private_key: Path) -> bool:
    """Whether a message was signed with this private key."""
    return _verifies(message, signature, _read_private(private_key).public_key())


def _verifies(message: bytes, signature: str, key: Ed25519PublicKey) -> bool:
    exceptions, _, _ = _cryptography()
    try:
        key.verify(bytes.fromhex(signature), message)
    except (exceptions.InvalidSignature, ValueError):  # or no hexadecimal digits at all
        return False
    return True


def _read_private(path: Path) -> Ed25519PrivateKey:
    _, serialization, ed25519 = _cryptography()
    text = read_text(path)
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise DataError(f"{path}: holds no private Ed25519 key that needs no password; make one with --new-key.")
    return key


def _read_public(path: Path) -> Ed25519PublicKey:
    _, serialization, ed25519 = _cryptography()
    text = read_text(path)
    try:
        key = serialization.load_pem_public_key(text.encode())
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise DataError(f"{path}: holds no public Ed25519 key.")
    return key


def _public_pem(key: Ed25519PublicKey) -> bytes:
    _, serialization, _ = _cryptography()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _cryptography() -> tuple[ModuleType, ModuleType, ModuleType]:
    """Its modules of exceptions, of key files and of Ed25519; or an error that says how to get it."""
    try:
        return (
            import_module("cryptography.exceptions"),
            import_module("cryptography.hazmat.primitives.serialization"),
            import_module("cryptography.hazmat.primitives.asymmetric.ed25519"),
        )
    except ImportError:
        raise DataError("Signatures need the package cryptography: pip install 'fairflows[sign]'.") from None
