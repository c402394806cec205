"""A key chooses the partition of its message and the Key_Shared slot of its consumer."""
