"""Scores in from files, standings out to files: on a data folder directly or on a server.

file → input (blocks of whole lines) → tables or objects (rows) → checking (columns) → importing → target
source → exporting (pages) → writing (a file that is complete or absent)
"""

from rankd.transfer.exporting import ExportReport, export_standings
from rankd.transfer.formats import Format
from rankd.transfer.importing import import_scores
from rankd.transfer.port import Source, Target
from rankd.transfer.report import BadLine, ImportReport

__all__ = [
    "BadLine",
    "ExportReport",
    "Format",
    "ImportReport",
    "Source",
    "Target",
    "export_standings",
    "import_scores",
]
