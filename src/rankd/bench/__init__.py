"""A load generator for a running server: requests are due when the schedule says so, however slow the answers are.

    load (what is asked for) → joining → schedule + requests → generator (connections) → histogram → report

Latencies count from the instant a request was due. A client that waits for each answer before it sends the next one
asks less while the server is stuck, and measures the stall once; here everything that was due meanwhile shows it.
"""

from rankd.bench.generator import generate
from rankd.bench.joining import join
from rankd.bench.load import Load
from rankd.bench.report import Report

__all__ = ["Load", "Report", "generate", "join"]
