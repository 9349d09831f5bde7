"""The report's figures: each module draws those of one question, `style` fixes how all of them look."""
