"""From text files to batches: documents, tokens, records, order."""
