"""The running host: generations, sites, sockets, reloads, restarts, and what is told of them."""
