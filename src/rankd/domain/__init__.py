"""The rules of a leaderboard: pure values and functions, no I/O, no clock."""
