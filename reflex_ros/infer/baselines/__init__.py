"""Prior methods that reuse or drop keys and values, to be measured against. All approximate."""
