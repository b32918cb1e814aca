"""The database in the browser: Datasette, read-only, for this machine alone.

`site` says what is shown (pure), `guard` what a request may do, `server` runs it until Ctrl-C.
"""
