"""Healthy training programs as people write them, one file a family."""
