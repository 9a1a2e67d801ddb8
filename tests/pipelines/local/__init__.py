"""Tests of runs on this machine."""
