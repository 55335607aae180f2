"""Authentication, access and rate limits."""
