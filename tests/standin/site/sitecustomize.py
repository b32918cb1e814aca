"""Imported by every Python that has this folder on its path: one of a stand-in Mac, where STANDIN_MAC names its folder."""

import os

if "STANDIN_MAC" in os.environ:
    import darwin_calls

    darwin_calls.install()
