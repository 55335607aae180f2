"""Ranks in Redis or Redis Cluster: a mirror of the projector's engine, read by any number of API processes."""
