"""Copies the metrics of pulled runs into TensorBoard event files and MLflow, each step once."""
