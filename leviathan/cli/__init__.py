"""One thin absl main a command."""
