"""Tests of the components' functions with artifacts on this machine."""
