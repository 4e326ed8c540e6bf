"""Rebuilds layers under variations of the machine: time, zone, locale, user and others, one by one."""
