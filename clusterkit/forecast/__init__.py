"""Forecasts a run's memory, time and start in the queue before it is submitted. Pure."""
