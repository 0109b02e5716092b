"""A wire between two hosts in user space: it drops, delays, damages, doubles and reorders packets, and it can be cut. (netem does this in
kernels that have it.)"""
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class Wire:
    """Two network devices; what one host sends leaves at the other's. Set the attributes at any time."""

    def __init__(self, names):
        self.loss = self.damage = self.twice = self.swapped = 0.0   # probabilities, per packet
        self.delay = 0.0                                            # seconds
        self.bits_a_second = 0                                      # 0: without limit
        self.cut = False
        self.packets = self.spoiled = 0
        self.names, self.draw = names, random.Random(7)
        self.ends = [self.open_device(name) for name in names]
        self.stop_reading, self.stop_writing = os.pipe()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    @staticmethod
    def open_device(name):
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
        return end

    def close(self):
        os.write(self.stop_writing, b".")
        self.thread.join()
        for end in (*self.ends, self.stop_reading, self.stop_writing):
            os.close(end)

    def carry(self):
        under_way, number, free_at = [], 0, [0.0, 0.0]
        while True:
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 1.0
            ready = select.select([*self.ends, self.stop_reading], [], [], wait)[0]
            if self.stop_reading in ready:
                return
            for side, end in enumerate(self.ends):
                if end not in ready:
                    continue
                for _ in range(64):
                    try:
                        packet = os.read(end, 65536)
                    except OSError:  # nothing is there, or the device is not up
                        break
                    for at, what in self.treat(packet, side, free_at):
                        heapq.heappush(under_way, (at, number, 1 - side, what))
                        number += 1
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, side, packet = heapq.heappop(under_way)
                try:
                    os.write(self.ends[side], packet)
                except OSError:  # the device is down, or its queue is full: a packet is lost
                    pass

    def treat(self, packet, side, free_at):
        """What comes out at the other end, and when."""
        self.packets += 1
        if self.cut or self.draw.random() < self.loss:
            self.spoiled += 1
            return []
        now = time.monotonic()
        at = now + self.delay
        if self.bits_a_second:
            free_at[side] = max(free_at[side], now) + 8 * len(packet) / self.bits_a_second
            at += free_at[side] - now
        if self.draw.random() < self.swapped:
            self.spoiled += 1
            at += 0.005 + self.delay
        if self.draw.random() < self.damage:
            self.spoiled += 1
            place = self.draw.randrange(len(packet))
            packet = packet[:place] + bytes([packet[place] ^ 1 << self.draw.randrange(8)]) + packet[place + 1:]
        twice = self.draw.random() < self.twice
        self.spoiled += twice
        return [(at, packet)] * (1 + twice)
