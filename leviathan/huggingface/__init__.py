"""Runs as directories of Hugging Face's Llama, and such directories as runs."""
