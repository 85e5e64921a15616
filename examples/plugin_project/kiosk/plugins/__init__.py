"""The plugins: each module has an `app`."""
