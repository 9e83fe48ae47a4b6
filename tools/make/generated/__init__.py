"""Parts of `tools.make.dump`: the lines of a synthetic dump with the shape of Freebase."""
