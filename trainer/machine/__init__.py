"""This machine: its processors, the device to compute on, and how threads wait."""
