"""Small files of the kinds that models accept."""

from __future__ import annotations

import base64

__all__ = ["GIF", "JPEG", "MP3", "PDF", "PNG", "WAV", "WEBP"]

#: A red pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(20)
GIF = b"GIF89a" + bytes(20)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L" + bytes(20)
PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF\n"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(20)
MP3 = b"ID3\x04\x00\x00\x00\x00\x00\x00" + bytes(20)
