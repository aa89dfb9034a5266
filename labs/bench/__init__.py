"""The measurements. Every figure is a ratio to a baseline that ran in the same minute, turn by turn."""
