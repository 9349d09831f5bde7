"""The draft families, one module each; `taps.model.family.FAMILIES` finds them by name."""
