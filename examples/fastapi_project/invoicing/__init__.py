"""A web application that sends invoices."""
