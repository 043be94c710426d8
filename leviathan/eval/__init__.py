"""Numbers from parameters: perplexity, frequency strata, tasks."""
