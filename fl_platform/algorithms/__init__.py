"""One file per published method, which registers it. The registry imports them when they are needed."""
