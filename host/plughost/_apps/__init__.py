"""The Falcon applications of sites, built from the declarations of plugins."""
