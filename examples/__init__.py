"""Programs that use numbagrad from end to end."""
