"""The step-time profiles that come with the package, as YAML files."""
