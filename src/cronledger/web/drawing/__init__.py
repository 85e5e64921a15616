"""Pictures: SVG made on the server. Beside each stands a table with the same data."""
