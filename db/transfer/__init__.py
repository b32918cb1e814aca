"""Rows between databases: backups, merges, and one run as a file; whatever comes from elsewhere is checked first."""
