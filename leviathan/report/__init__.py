"""Pictures and tables of runs, from the files that they left."""
