"""Parts of `make_dump.py`: a dump of Freebase's shape, made up line by line."""
