"""Tests of the page of one job and of the form that submits jobs."""
