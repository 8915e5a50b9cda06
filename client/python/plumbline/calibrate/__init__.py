"""Measures what a device profile claims on the device at hand: `python -m plumbline.calibrate --help`."""
