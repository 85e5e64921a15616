"""Who sends a request, and whether the request may change something."""
