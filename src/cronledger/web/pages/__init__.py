"""The pages, one module each, with the entry of the navigation (`ENTRY`) and the routes."""
