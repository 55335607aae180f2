"""What the projector writes to Redis: changed rows, whole boards, backfills."""
