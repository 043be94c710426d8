"""Layers of the backbone: norms, rotary positions, attention, MLP."""
