"""Imported by every Python that has this folder on its path: one of the stand-in Mac whose folder STANDIN_MAC names."""

import os

if "STANDIN_MAC" in os.environ:
    import darwin_calls

    darwin_calls.install()
