"""Speaking to a server: `sse` and `answer` are pure, `client` does the I/O and alone imports the HTTP package."""
