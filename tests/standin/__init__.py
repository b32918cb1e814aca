"""Stand-ins for Macs: whole commands run as if on one, on any system.

`site/` is put on PYTHONPATH: its `sitecustomize` makes each process believe that it runs on macOS, and answers the
calls into Darwin's libraries. `tools/tool` is put on PATH under the name of each tool, and prints what the Mac's tool
printed.
"""
