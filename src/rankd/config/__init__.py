"""The server's configuration: `rankd.toml`, overridden by `RANKD_*`."""
