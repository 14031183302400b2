"""Tests of the profile template."""
