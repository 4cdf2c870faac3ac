"""Tables of flows: files, formats, splits, and what a data set is."""
