"""What a plugin is written against: declarations, hooks, its context."""
