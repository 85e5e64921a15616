"""Commands. A supervisor process starts them, and kills them with everything that they started."""
