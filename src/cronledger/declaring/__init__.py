"""Jobs declared in Python: `App`, `@app.job`, their handles, and the call of a handler."""
