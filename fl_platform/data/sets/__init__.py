"""The data sets of the platform, which register themselves. The registry imports them when they are needed."""
