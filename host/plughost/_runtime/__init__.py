"""The running host: generations, sites, sockets, reloads and restarts."""
