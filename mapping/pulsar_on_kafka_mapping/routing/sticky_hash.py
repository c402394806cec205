"""A key's Murmur3 (x86, 32 bits, seed 0) gives it its Key_Shared slot."""

from __future__ import annotations

from typing import Final

SLOTS: Final = 65_536

_U32: Final = 0xFFFF_FFFF


def murmur3_32(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0, unsigned. Source: Austin Appleby's reference; Pulsar Murmur3_32Hash."""
    hashed = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        hashed ^= _scrambled(int.from_bytes(data[at : at + 4], "little"))
        hashed = (hashed << 13 | hashed >> 19) & _U32
        hashed = (hashed * 5 + 0xE654_6B64) & _U32
    if whole != len(data):
        hashed ^= _scrambled(int.from_bytes(data[whole:], "little"))
    hashed ^= len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EB_CA6B & _U32
    hashed = (hashed ^ hashed >> 13) * 0xC2B2_AE35 & _U32
    return hashed ^ hashed >> 16


def sticky_key_hash(key: bytes) -> int:
    """The slot of a key: 1 to 65,535, within Pulsar's range of 0 to 65,535.

    Source: Pulsar StickyKeyConsumerSelectorUtils (4.0): `Murmur3_32Hash.makeHash(key) % 65536`, where `makeHash` drops
    the sign; 0 stands for "no hash" there, so a key that would get it gets 1.
    """
    return (murmur3_32(key) & 0x7FFF_FFFF) % SLOTS or 1


def _scrambled(block: int) -> int:
    block = block * 0xCC9E_2D51 & _U32
    block = (block << 15 | block >> 17) & _U32
    return block * 0x1B87_3593 & _U32
