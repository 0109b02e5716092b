"""The common output of all benches: the processor of the figures, and their intervals."""
import os
import platform
import random
import statistics

SMALLEST_ROUNDS = 6  # fewer give no interval: of five, the least and the most hold the median with 94 % confidence at best


def processor():
    """Such as `AMD EPYC, 2 cores`; the name is the kernel's."""
    name = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} core{'s' if cores > 1 else ''}"


def interval_name(rounds):
    """What stands over the two figures beside a ratio of so many rounds."""
    return "95 %" if rounds >= SMALLEST_ROUNDS else f"least .. most of {rounds}"


def interval(ratios):
    """The 95 % interval of the median, by bootstrap, the same at every call; of too few ratios the least and the most."""
    if len(ratios) < SMALLEST_ROUNDS:
        return min(ratios), max(ratios)
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[3899]


def markdown(columns, rows):
    """A table under a line that names the processor, as it stands in the log."""
    lines = [f"Processor: {processor()}.", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
