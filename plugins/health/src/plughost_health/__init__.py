"""Health checks of a host: whether it is alive, ready for requests, and started."""
