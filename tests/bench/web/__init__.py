"""How fast the web page is on a large ledger."""
