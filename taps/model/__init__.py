"""The target model, the draft model, its losses and its training."""
