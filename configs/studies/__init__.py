"""One file a study: the runs that are compared, and what is asked of them."""
