"""Scores that arrive through topics of Kafka."""
