"""What a server is told: `rankd.toml`, overridden by `RANKD_*`."""
