"""Audits for training loops that others wrote. Each module needs the library that it is named after, and is imported
by name: `from plumbline.integrations.transformers import AuditCallback`."""
