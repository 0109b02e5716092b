"""What lies in a shared library: sections, and the GPU code in .nv_fatbin. Nothing beyond Python's standard library."""
import struct

FATBIN_MAGIC = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2


def section(path, wanted):
    """The bytes of a section of an ELF64 file, or None."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path} is no 64-bit ELF file")
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    names = headers[names_at][4]
    for name, _, _, _, offset, length in headers:
        end = data.index(b"\0", names + name)
        if data[names + name:end].decode() == wanted:
            return data[offset:offset + length]
    return None


def gpu_code(path):
    """{"sm_80", "sm_90", "compute_90"}: machine code and PTX that the library carries, in any of its fat binaries; empty without."""
    data = section(path, ".nv_fatbin") or b""
    found, at = set(), 0
    while at + 16 <= len(data):
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:  # padding between two
            at += 8
            continue
        end, entry = at + header + length, at + header
        while entry + 32 <= end:
            kind, _, entry_header, entry_length = struct.unpack_from("<HHIQ", data, entry)
            architecture, = struct.unpack_from("<I", data, entry + 28)
            if kind in (PTX, MACHINE_CODE):
                found.add(("sm_" if kind == MACHINE_CODE else "compute_") + str(architecture))
            entry += entry_header + entry_length
        at = end
    return found
