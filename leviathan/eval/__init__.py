"""Numbers from a checkpoint: perplexity, in total and by frequency."""
