"""Tests of commands for Google Cloud, on an emulator or scripted services."""
