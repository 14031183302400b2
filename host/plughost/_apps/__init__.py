"""The Falcon applications that sites serve, made of what plugins declare."""
