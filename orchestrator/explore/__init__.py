"""The database in the browser: Datasette, read-only, for this machine alone.

`site` defines the content (pure), `guard` restricts requests, `server` runs it until Ctrl-C.
"""
