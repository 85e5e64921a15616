"""Runtime: builds the components of one replica, drives their loops, and drains them."""
