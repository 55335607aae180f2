"""An open-loop load generator for a running server: requests follow a schedule, however slow the answers are.

    load → joining → schedule + requests → generator (connections) → histogram → report

Latencies count from the instant a request was due. A client that waits for each answer before it sends the next request
asks less while the server stalls, and measures the stall once; here every request that was due meanwhile shows it.
"""

from rankd.bench.generator import generate
from rankd.bench.joining import join
from rankd.bench.load import Load
from rankd.bench.report import LoadReport

__all__ = ["Load", "LoadReport", "generate", "join"]
