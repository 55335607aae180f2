"""What API processes read from Redis: pages, ranks, statistics, over one shard or several."""
