"""Evidence that a server's mechanism ran, as data: one TOML file per server.

`signs` reads the files, `matches` finds their signs in what a request left, `binding` decides whose sign each is, and
`evidence` states what that proves. `values` looks into JSON and metrics.
"""
