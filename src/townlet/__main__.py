"""`python -m townlet`."""

from townlet.cli.app import main

main()
