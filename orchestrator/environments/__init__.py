"""Environments that arms declare: resolved once, locked exactly, built in the cache, and found again.

requirements   what a user names, read and checked. Pure.
baseline       what is installed here, which every other package keeps
tools          uv, or pip where there is no uv: they resolve and install, nothing here does
resolve        requirements and baseline in, lock out
store          built environments, each under its lock's hash
provision      a plan's environments: looked up, or made
"""
