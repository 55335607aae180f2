"""Imports scores from files and exports standings to files, on a data folder or a server.

file → input (blocks of whole lines) → tables or objects (rows) → checking (columns) → importing → target
source → exporting (pages) → writing (a file that is complete or absent)
"""

from rankd.operations.transfer.exporting import ExportReport, export_standings
from rankd.operations.transfer.formats import Format
from rankd.operations.transfer.importing import import_scores
from rankd.operations.transfer.port import ImportTarget, Source
from rankd.operations.transfer.report import BadLine, ImportReport

__all__ = [
    "BadLine",
    "ExportReport",
    "Format",
    "ImportReport",
    "ImportTarget",
    "Source",
    "export_standings",
    "import_scores",
]
