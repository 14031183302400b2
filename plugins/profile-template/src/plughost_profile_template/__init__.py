"""Profile template of plughost: a response envelope and a user profile to copy from."""
