"""Language-model pretraining in JAX, built around LEV (arXiv 2601.22040 v2)."""
