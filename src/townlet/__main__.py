"""`python -m townlet`."""

from townlet.cli.entry import main

main()
