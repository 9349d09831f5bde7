"""What every stage needs and no formula does: errors, artefacts, progress, the command line."""
