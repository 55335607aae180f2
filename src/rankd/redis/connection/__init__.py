"""The connection to Redis or Redis Cluster: addresses, pipelining, the breaker, the function library."""
