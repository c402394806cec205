"""The effects of an outcome on partitions and subscriptions."""
