"""What `import townlet` offers beside environments: functions of the pipeline, and its results as objects."""
