"""Stage 7 of a score's path: windows are closed, archived and retired."""
