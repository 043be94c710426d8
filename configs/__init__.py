"""One file an arm; base.py has every key."""
