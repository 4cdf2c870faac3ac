"""Runs: experiments, their schedule, their folder, report and pictures."""
