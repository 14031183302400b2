"""Message service of plughost: short texts, persistent."""
