"""Configuration: options with defaults and bounds, composed from arguments and files, resolved into one RunSpec."""
