"""Kafka as rankd uses it: addresses, clients, topics."""
