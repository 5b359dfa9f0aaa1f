"""The command line ``reflex-ros``: one file for each command."""
