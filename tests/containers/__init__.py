"""Tests of the images: their files, and the servers and jobs that run in them."""
