"""`python -m plughost` is the command `plughost`."""

from plughost._cli.main import main

main(prog_name="plughost")
