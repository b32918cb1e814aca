"""What proves that a server's mechanism ran: data, a TOML file a server. `signs` reads them, `match` applies them."""
